//! Settings: flag, else environment, else configuration file, else default. Every
//! value is checked, used or not, and a malformed one names where it came from.

mod file;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use backtrail_core::error::{Error, Result};

use crate::env::Env;
pub(crate) use value::{duration, size};

/// A whole number above 0.
pub(crate) fn count(s: &str) -> Result<u64, String> {
    value::count(s, u64::MAX)
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A flag of this command.
    Flag(&'static str),
    /// An environment variable.
    Env(&'static str),
    /// The configuration file.
    File(PathBuf),
    /// Nobody set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Env(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One setting: its names, its default, and what it does.
pub(crate) struct Row {
    /// Dotted key in the configuration file.
    pub(crate) key: &'static str,
    /// Environment variable.
    pub(crate) env: &'static str,
    /// Value when nobody sets it; empty: decided where it is used.
    pub(crate) default: &'static str,
    /// May stand in the configuration file.
    pub(crate) in_file: bool,
    /// What it does, with the allowed form.
    pub(crate) help: &'static str,
}

const fn row(
    key: &'static str,
    env: &'static str,
    default: &'static str,
    help: &'static str,
) -> Row {
    Row { key, env, default, in_file: true, help }
}

/// The one setting whose value is a path of any bytes.
const WORKSPACE: &str = "workspace";

/// Every setting there is. `docs/cli.md` and `backtrail config` are made from it.
pub(crate) const ROWS: &[Row] = &[
    row("store", "BACKTRAIL_STORE", "", "where history is kept: a directory or a URL"),
    row("objects", "BACKTRAIL_OBJECTS", "", "where objects are kept, when not in the store: a URL"),
    row("tenant", "BACKTRAIL_TENANT", "default", "whose store it is: 1-63 of a-z, 0-9 and -"),
    row("lease_ttl", "BACKTRAIL_LEASE_TTL", "60s", "how long a silent holder keeps a network lock"),
    row("store_attempts", "BACKTRAIL_STORE_ATTEMPTS", "6", "tries of one store operation"),
    row("store_budget", "BACKTRAIL_STORE_BUDGET", "5m", "time for all tries of an operation"),
    row("mongo_wait", "BACKTRAIL_MONGO_WAIT", "60s", "how long to wait for a primary at open"),
    Row { in_file: false, ..row(WORKSPACE, "BACKTRAIL_WORKSPACE", "", "the directory to work on") },
    row("cache_dir", "BACKTRAIL_CACHE_DIR", "", "where the stat cache lies"),
    row("wait", "BACKTRAIL_WAIT", "30s", "how long to wait for a lock; 0 does not wait"),
    row("threads", "BACKTRAIL_THREADS", "", "threads that walk and hash; default: the cores"),
    row("compression", "BACKTRAIL_COMPRESSION", "zstd", "zstd or off"),
    row("capture.max_file", "BACKTRAIL_MAX_FILE", "32MiB", "larger files are skipped"),
    row("capture.max_files", "BACKTRAIL_MAX_FILES", "50000", "more files are refused"),
    row(
        "capture.safety_window",
        "BACKTRAIL_SAFETY_WINDOW",
        "2s",
        "files changed this shortly before a capture are read again by the next; 0 to 3600s",
    ),
    row("capture.timeout", "BACKTRAIL_CAPTURE_TIMEOUT", "", "a capture taking longer is given up"),
    row(
        "restore.recover",
        "BACKTRAIL_RECOVER",
        "ask",
        "what to do with an interrupted restore: ask, finish or rollback",
    ),
    row(
        "retention.keep",
        "BACKTRAIL_KEEP",
        "20",
        "newest snapshots of a finished run that prune keeps",
    ),
    row("retention.bank_keep", "BACKTRAIL_BANK_KEEP", "10", "newest banks that prune keeps"),
    row("retention.bank_age", "BACKTRAIL_BANK_AGE", "168h", "banks younger than this stay"),
    row(
        "prune.grace",
        "BACKTRAIL_PRUNE_GRACE",
        "1h",
        "younger objects are spared by prune; 0 spares none",
    ),
    row("run.grace", "BACKTRAIL_GRACE", "10s", "what a command gets between TERM and KILL"),
    row("run.log_limit", "BACKTRAIL_LOG_LIMIT", "256MiB", "the longest log of a run"),
    row(
        "run.tombstone_age",
        "BACKTRAIL_TOMBSTONE_AGE",
        "720h",
        "how long a deleted run is remembered",
    ),
    Row {
        in_file: false,
        ..row(
            "unsafe_no_fsync",
            "BACKTRAIL_UNSAFE_NO_FSYNC",
            "0",
            "1: nothing is durable; for tests only",
        )
    },
];

/// What an interrupted restore leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recover {
    /// Refuse, and print the two commands that end it.
    Ask,
    /// Finish it.
    Finish,
    /// Roll it back.
    Rollback,
}

/// Final values.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where history is kept, as given.
    pub(crate) store: Option<String>,
    /// Where objects are kept when not in the store.
    pub(crate) objects: Option<String>,
    /// Whose store.
    pub(crate) tenant: String,
    /// How long a silent holder keeps a network lock.
    pub(crate) lease_ttl: Duration,
    /// Tries of one store operation.
    pub(crate) store_attempts: u32,
    /// Time for all tries of a store operation.
    pub(crate) store_budget: Duration,
    /// How long to wait for a primary.
    pub(crate) mongo_wait: Duration,
    /// The directory to work on, as given.
    pub(crate) workspace: Option<PathBuf>,
    /// Where the stat cache lies; `None` without a home.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Where host locks lie when the store is not local; `None` without a home.
    pub(crate) state_dir: Option<PathBuf>,
    /// How long to wait for a lock.
    pub(crate) wait: Duration,
    /// Threads that walk and hash.
    pub(crate) threads: usize,
    /// Compress objects.
    pub(crate) compress: bool,
    /// Larger files are skipped.
    pub(crate) max_file_bytes: u64,
    /// More files are refused.
    pub(crate) max_files: u64,
    /// How old a file must be for its stat to be trusted.
    pub(crate) safety_window: Duration,
    /// A capture taking longer is given up.
    pub(crate) capture_timeout: Option<Duration>,
    /// What an interrupted restore leads to.
    pub(crate) recover: Recover,
    /// Newest snapshots of a finished run that prune keeps.
    pub(crate) keep: u64,
    /// Newest banks that prune keeps.
    pub(crate) bank_keep: u64,
    /// Banks younger than this stay.
    pub(crate) bank_age: Duration,
    /// Younger objects are spared by prune.
    pub(crate) grace: Duration,
    /// What a command gets between TERM and KILL.
    pub(crate) run_grace: Duration,
    /// The longest log of a run in bytes.
    pub(crate) log_limit: u64,
    /// How long a deleted run is remembered.
    pub(crate) tombstone_age: Duration,
    /// Nothing is durable.
    pub(crate) unsafe_no_fsync: bool,
    /// Every setting's text and source, by key.
    pub(crate) found: BTreeMap<&'static str, (String, Source)>,
}

/// A value given by a flag: the setting's key, the flag's name, the text.
pub(crate) type Override = (&'static str, &'static str, String);

impl Settings {
    /// Resolves all settings. `workspace` is the flag of that name, which need not be text.
    pub(crate) fn resolve(
        env: &Env,
        flags: &[Override],
        workspace: Option<PathBuf>,
    ) -> Result<Self> {
        let path = env.xdg("XDG_CONFIG_HOME", ".config").map(|d| d.join("backtrail/config.toml"));
        let values = match &path {
            Some(p) => file::read(p)?.map(|text| file::parse(p, &text)).transpose()?,
            None => None,
        };
        let file = values.zip(path);
        let mut found = BTreeMap::new();
        for row in ROWS.iter().filter(|r| r.key != WORKSPACE) {
            found.insert(row.key, find(row, env, flags, file.as_ref())?);
        }
        let workspace = match (workspace, env.raw("BACKTRAIL_WORKSPACE")) {
            (Some(dir), _) => Some((dir, Source::Flag("--workspace"))),
            (None, Some(dir)) => Some((dir.into(), Source::Env("BACKTRAIL_WORKSPACE"))),
            (None, None) => None,
        };
        let shown = workspace.as_ref().map(|(d, s)| (d.display().to_string(), s.clone()));
        found.insert(WORKSPACE, shown.unwrap_or((String::new(), Source::Default)));
        Self::typed(env, found, workspace.map(|(dir, _)| dir))
    }

    fn typed(
        env: &Env,
        found: BTreeMap<&'static str, (String, Source)>,
        workspace: Option<PathBuf>,
    ) -> Result<Self> {
        let get = Found(&found);
        let cores = || std::thread::available_parallelism().map_or(2, usize::from);
        let dir = |key| get.optional(key, value::directory);
        Ok(Self {
            store: get.optional("store", |s| Ok(s.to_owned()))?,
            objects: get.optional("objects", |s| Ok(s.to_owned()))?,
            tenant: get.required("tenant", value::tenant)?,
            lease_ttl: get.required("lease_ttl", value::lease_ttl)?,
            store_attempts: get.required("store_attempts", |s| value::count(s, 1_000))? as u32,
            store_budget: get.required("store_budget", value::duration)?,
            mongo_wait: get.required("mongo_wait", value::duration_from_zero)?,
            workspace,
            cache_dir: dir("cache_dir")?
                .or_else(|| env.xdg("XDG_CACHE_HOME", ".cache").map(|d| d.join("backtrail"))),
            state_dir: env.xdg("XDG_STATE_HOME", ".local/state").map(|d| d.join("backtrail")),
            wait: get.required("wait", value::duration_from_zero)?,
            threads: get
                .optional("threads", |s| value::count(s, 256))?
                .map_or_else(cores, |n| n as usize),
            compress: get.required("compression", |s| value::word(s, &["off", "zstd"]))? == 1,
            max_file_bytes: get.required("capture.max_file", value::size)?,
            max_files: get
                .required("capture.max_files", |s| value::count(s, u64::from(u32::MAX)))?,
            safety_window: get.required("capture.safety_window", value::safety_window)?,
            capture_timeout: get.optional("capture.timeout", value::duration)?,
            recover: match get
                .required("restore.recover", |s| value::word(s, &["ask", "finish", "rollback"]))?
            {
                0 => Recover::Ask,
                1 => Recover::Finish,
                _ => Recover::Rollback,
            },
            keep: get.required("retention.keep", |s| value::count(s, u64::MAX))?,
            bank_keep: get.required("retention.bank_keep", |s| value::count(s, u64::MAX))?,
            bank_age: get.required("retention.bank_age", value::duration)?,
            grace: get.required("prune.grace", value::duration_from_zero)?,
            run_grace: get.required("run.grace", value::duration_from_zero)?,
            log_limit: get.required("run.log_limit", value::size)?,
            tombstone_age: get.required("run.tombstone_age", value::duration)?,
            unsafe_no_fsync: get.required("unsafe_no_fsync", |s| value::word(s, &["0", "1"]))? == 1,
            found,
        })
    }

    /// The safety window in nanoseconds, as core counts it.
    pub(crate) fn safety_window_ns(&self) -> i64 {
        i64::try_from(self.safety_window.as_nanos()).unwrap_or(i64::MAX)
    }
}

struct Found<'a>(&'a BTreeMap<&'static str, (String, Source)>);

impl Found<'_> {
    fn optional<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some((text, source)) = self.0.get(key).filter(|(t, _)| !t.is_empty()) else {
            return Ok(None);
        };
        parse(text).map(Some).map_err(|why| bad(key, source, &why))
    }

    fn required<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T> {
        self.optional(key, parse)?
            .ok_or_else(|| Error::invalid(format!("setting {key} has no value")))
    }
}

fn bad(key: &str, source: &Source, why: &str) -> Error {
    let place = match source {
        Source::File(path) => format!("{key} in {}", path.display()),
        other => other.to_string(),
    };
    Error::invalid(format!("bad value for {place}: {why}"))
        .with_detail("setting", key)
        .with_detail("source", source.to_string())
}

fn find(
    row: &Row,
    env: &Env,
    flags: &[Override],
    file: Option<&(BTreeMap<String, String>, PathBuf)>,
) -> Result<(String, Source)> {
    if let Some((_, flag, text)) = flags.iter().find(|(key, _, _)| *key == row.key) {
        if text.is_empty() {
            return Err(bad(row.key, &Source::Flag(flag), "it is empty"));
        }
        return Ok((text.clone(), Source::Flag(flag)));
    }
    if let Some(text) = env.text(row.env)? {
        return Ok((text.to_owned(), Source::Env(row.env)));
    }
    if let Some((values, path)) = file
        && let Some(text) = values.get(row.key)
    {
        let source = Source::File(path.clone());
        if matches!(row.key, "store" | "objects") && value::has_user_info(text) {
            return Err(bad(row.key, &source, "a password in a file is refused")
                .with_hint(format!("export {}=URL", row.env)));
        }
        return Ok((text.clone(), source));
    }
    Ok((row.default.to_owned(), Source::Default))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn message(env: &Env, flags: &[Override]) -> String {
        Settings::resolve(env, flags, None).expect_err("must fail").message().to_owned()
    }

    #[test]
    fn defaults_are_those_documented() {
        let s = Settings::resolve(&Env::of(&[]), &[], None).expect("defaults");
        assert_eq!((s.max_file_bytes, s.max_files), (32 << 20, 50_000));
        assert_eq!((s.wait, s.grace), (Duration::from_secs(30), Duration::from_secs(3600)));
        assert_eq!(s.found["wait"].1, Source::Default);
    }

    #[test]
    fn a_flag_beats_the_environment_and_both_name_themselves() {
        let env = Env::of(&[("BACKTRAIL_MAX_FILE", "1MiB")]);
        let flag = ("capture.max_file", "--max-file", "2MiB".to_owned());
        assert_eq!(Settings::resolve(&env, &[], None).expect("env").max_file_bytes, 1 << 20);
        assert_eq!(Settings::resolve(&env, &[flag], None).expect("flag").max_file_bytes, 2 << 20);
        let flag = ("capture.max_file", "--max-file", "0".to_owned());
        assert!(message(&env, &[flag]).starts_with("bad value for --max-file"));
    }

    #[test]
    fn a_malformed_variable_names_itself() {
        for bad in ["0", "-1", "20GBs", "2TiB", "1.5MiB", "MiB"] {
            let said = message(&Env::of(&[("BACKTRAIL_MAX_FILE", bad)]), &[]);
            assert!(said.contains("BACKTRAIL_MAX_FILE") && said.contains(bad), "{said}");
        }
    }

    #[test]
    fn a_file_is_read_by_dotted_keys_and_unknown_ones_are_refused() {
        let path = Path::new("/c/config.toml");
        let good = "store = \"/s\"\n[capture]\nmax_files = 5\n";
        let values = file::parse(path, good).expect("parses");
        assert_eq!(values["capture.max_files"], "5");
        for (bad, part) in [
            ("strore = \"/s\"", "strore"),
            ("workspace = \"/w\"", "workspace"),
            ("a = [1]", "no value"),
            ("x = \n", "line 1"),
        ] {
            let said = file::parse(path, bad).expect_err(bad).message().to_owned();
            assert!(said.contains(part) && said.contains("/c/config.toml"), "{said}");
        }
    }
}
