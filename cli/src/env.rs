//! The only place that reads the environment: variables, current directory, home,
//! and what is a terminal. Everything else is handed an [`Env`].
#![expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use backtrail_core::error::{Error, IoContext as _, Result};

/// The environment as it was when the process began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    vars: BTreeMap<OsString, OsString>,
    /// A person types on standard input.
    pub(crate) stdin_terminal: bool,
    /// A person reads standard output.
    pub(crate) stdout_terminal: bool,
    /// A person reads standard error.
    pub(crate) stderr_terminal: bool,
    /// The home directory: `HOME`, else the user database.
    pub(crate) home: Option<PathBuf>,
}

impl Env {
    /// Reads it all, once.
    pub(crate) fn read() -> Self {
        Self {
            vars: std::env::vars_os().collect(),
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal: std::io::stdout().is_terminal(),
            stderr_terminal: std::io::stderr().is_terminal(),
            home: std::env::home_dir().filter(|h| h.is_absolute()),
        }
    }

    /// An environment for tests.
    #[cfg(test)]
    pub(crate) fn of(vars: &[(&str, &str)]) -> Self {
        let vars = vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Self { vars, home: Some("/home/tester".into()), ..Self::default() }
    }

    /// A variable that is set and not empty. Fails when it is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.raw(name) {
            None => Ok(None),
            Some(v) => v.to_str().map(Some).ok_or_else(|| {
                Error::invalid(format!("environment variable {name} is not valid UTF-8"))
            }),
        }
    }

    /// A variable that is set and not empty, as bytes.
    pub(crate) fn raw(&self, name: &str) -> Option<&OsString> {
        self.vars.get(std::ffi::OsStr::new(name)).filter(|v| !v.is_empty())
    }

    /// Every variable, as commands inherit them.
    pub(crate) fn all(&self) -> Vec<(OsString, OsString)> {
        self.vars.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// An XDG base directory: the variable when it is absolute (anything else is to be
    /// ignored, says its specification), else `fallback` below the home directory.
    pub(crate) fn xdg(&self, name: &str, fallback: &str) -> Option<PathBuf> {
        let set = self.raw(name).map(PathBuf::from).filter(|p| p.is_absolute());
        set.or_else(|| self.home.as_ref().map(|h| h.join(fallback)))
    }
}

/// The command line, program name included.
pub(crate) fn args() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// This program.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().context(|| "this program cannot be found".to_owned())
}

/// The directory the command was started in.
pub(crate) fn current_dir() -> Result<PathBuf> {
    std::env::current_dir()
        .context(|| "the current directory cannot be found".to_owned())
        .map_err(|e| e.with_hint("cd to a directory that exists, or give --workspace DIR"))
}

/// `path` made absolute against the current directory; `.` and `..` are kept, because
/// what they mean depends on links.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.is_absolute() { Ok(path.to_path_buf()) } else { Ok(current_dir()?.join(path)) }
}

/// Signals that this process was started with as ignored, one bit each from SIGHUP:
/// `nohup` and background jobs of a script rely on them. 0 where the system does not say.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}
