//! The environment of a command: layers, and the variables that say where it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::attempt::RunKey;

/// Names and values, later ones winning.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

/// Only names are shown: values are secrets as often as not.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The variables that tell a command where it is. Those that are `None` are taken out,
/// so that an outer run's never reach an inner one's command.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// `BACKTRAIL_RUN_ID` and `BACKTRAIL_STORE_ID`.
    pub run: RunKey,
    /// `BACKTRAIL_NODE`.
    pub node: String,
    /// `BACKTRAIL_ITERATION`, from 0.
    pub iteration: u64,
    /// `BACKTRAIL_ATTEMPT`, from 1.
    pub attempt: u64,
    /// `BACKTRAIL_INPUT`.
    pub input: Option<PathBuf>,
    /// `BACKTRAIL_OUTPUT`.
    pub output: Option<PathBuf>,
    /// `BACKTRAIL_QUESTION`.
    pub question: Option<PathBuf>,
    /// `BACKTRAIL_ANSWERS`.
    pub answers: Option<PathBuf>,
    /// `BACKTRAIL_WORKSPACE`.
    pub workspace: Option<PathBuf>,
    /// `BACKTRAIL_STORE`.
    pub store: Option<OsString>,
    /// `BACKTRAIL_OBJECTS`.
    pub objects: Option<OsString>,
    /// `BACKTRAIL_TENANT`.
    pub tenant: Option<OsString>,
    /// `BACKTRAIL_RUN_FENCE`: the run lock's token.
    pub fence: Option<u64>,
}

impl Variables {
    /// `<run>:<node>:<iteration>`.
    pub fn execution(&self) -> String {
        format!("{}:{}:{}", self.run.run, self.node, self.iteration)
    }
}

impl Environment {
    /// Begins with the engine's own.
    pub fn new(engine: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(engine.into_iter().collect())
    }

    /// Lays names and values over what is there.
    pub fn layer<N, V>(&mut self, over: impl IntoIterator<Item = (N, V)>)
    where
        N: Into<OsString>,
        V: Into<OsString>,
    {
        self.0.extend(over.into_iter().map(|(n, v)| (n.into(), v.into())));
    }

    /// Sets, or takes out, every variable that says where the command is. Comes last.
    pub fn place(&mut self, at: &Variables) {
        let text = |s: String| Some(OsString::from(s));
        let path = |p: &Option<PathBuf>| p.clone().map(PathBuf::into_os_string);
        let all = [
            ("BACKTRAIL_RUN_ID", text(at.run.run.clone())),
            ("BACKTRAIL_STORE_ID", text(at.run.store.clone())),
            ("BACKTRAIL_NODE", text(at.node.clone())),
            ("BACKTRAIL_ITERATION", text(at.iteration.to_string())),
            ("BACKTRAIL_ATTEMPT", text(at.attempt.to_string())),
            ("BACKTRAIL_EXECUTION_ID", text(at.execution())),
            ("BACKTRAIL_INPUT", path(&at.input)),
            ("BACKTRAIL_OUTPUT", path(&at.output)),
            ("BACKTRAIL_QUESTION", path(&at.question)),
            ("BACKTRAIL_ANSWERS", path(&at.answers)),
            ("BACKTRAIL_WORKSPACE", path(&at.workspace)),
            ("BACKTRAIL_STORE", at.store.clone()),
            ("BACKTRAIL_OBJECTS", at.objects.clone()),
            ("BACKTRAIL_TENANT", at.tenant.clone()),
            ("BACKTRAIL_RUN_FENCE", at.fence.and_then(|f| text(f.to_string()))),
        ];
        for (name, value) in all {
            match value {
                Some(value) => self.0.insert(name.into(), value),
                None => self.0.remove(OsStr::new(name)),
            };
        }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// All of it, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(n, v)| (n.as_os_str(), v.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win_and_an_outer_runs_variables_do_not_reach_through() {
        let outer = [("A", "1"), ("BACKTRAIL_RUN_FENCE", "7"), ("BACKTRAIL_NODE", "outer")];
        let mut env = Environment::new(outer.map(|(n, v)| (n.into(), v.into())));
        env.layer([("A", "2"), ("B", "3")]);
        env.layer([("B", "4")]);
        let run = RunKey { run: "r".into(), store: "s".into() };
        let at = Variables { run, node: "n".into(), attempt: 1, ..Variables::default() };
        env.place(&at);
        let get = |name: &str| env.get(name).map(|v| v.to_str().expect("text").to_owned());
        assert_eq!(get("A").as_deref(), Some("2"));
        assert_eq!(get("B").as_deref(), Some("4"));
        assert_eq!(get("BACKTRAIL_NODE").as_deref(), Some("n"));
        assert_eq!(get("BACKTRAIL_EXECUTION_ID").as_deref(), Some("r:n:0"));
        assert_eq!(get("BACKTRAIL_RUN_FENCE"), None);
        assert!(!format!("{env:?}").contains('4'), "values are not shown");
    }
}
