//! A sandbox for end-to-end tests: a home, a store and a workspace of its own, and the
//! binary run in a cleared environment.
//!
//! Cargo tells only integration tests where a binary of their package lies, so a
//! sandbox is made with its path:
//!
//! ```ignore
//! let sandbox = Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"));
//! sandbox.write("a.txt", "hello\n");
//! let run = sandbox.run(["capture", "--json"]);
//! assert_eq!(run.code, 0, "{run}");
//! assert_eq!(run.json()["created"], true);
//! ```

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// What one path of a tree is.
#[derive(Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file: permission bits and bytes.
    File(u32, Vec<u8>),
    /// A directory: permission bits.
    Dir(u32),
    /// A link: its text.
    Link(Vec<u8>),
    /// A pipe, socket or device.
    Special,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(mode, bytes) if bytes.len() > 60 => {
                write!(f, "file {mode:04o} of {} bytes", bytes.len())
            }
            Self::File(mode, bytes) => {
                write!(f, "file {mode:04o} {:?}", bytes.escape_ascii().to_string())
            }
            Self::Dir(mode) => write!(f, "dir {mode:04o}"),
            Self::Link(to) => write!(f, "link {:?}", to.escape_ascii().to_string()),
            Self::Special => f.write_str("special"),
        }
    }
}

/// Every path below a directory, raw bytes relative to it.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// Reads a whole tree for comparison. Follows no link.
pub fn tree(root: &Path) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("lstat");
            let mode = meta.mode() & 0o7777;
            let kind = meta.file_type();
            let found = if kind.is_dir() {
                todo.push(path.clone());
                Entry::Dir(mode)
            } else if kind.is_symlink() {
                Entry::Link(fs::read_link(&path).expect("link").as_os_str().as_bytes().to_vec())
            } else if kind.is_file() {
                Entry::File(mode, fs::read(&path).expect("read"))
            } else {
                Entry::Special
            };
            let rel = path.strip_prefix(root).expect("below the root");
            out.insert(rel.as_os_str().as_bytes().to_vec(), found);
        }
    }
    out
}

/// Fails with the paths that differ.
pub fn assert_same_tree(got: &Tree, want: &Tree) {
    let mut wrong = Vec::new();
    for path in got.keys().chain(want.keys()) {
        let (g, w) = (got.get(path), want.get(path));
        if g != w {
            wrong.push(format!("{}: is {g:?}, should be {w:?}", path.escape_ascii()));
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What a command printed and how it ended.
pub struct Run {
    /// The arguments, for messages.
    pub args: Vec<OsString>,
    /// The exit code, 128+n for a signal that killed it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as one JSON document and nothing else.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {self}"))
    }

    /// Fails unless it ended with `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// The code of the JSON failure; fails when the document and the exit code disagree.
    #[track_caller]
    pub fn error_code(&self) -> String {
        let json = self.json();
        assert_eq!(json["exit_code"], self.code, "{self}");
        json["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {self}")).to_owned()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} ended with {}", self.args, self.code)?;
        write!(f, "-- stdout\n{}\n-- stderr\n{}", self.out(), self.stderr)
    }
}

/// Directories of one test and the binary to run in them; removed when dropped.
pub struct Sandbox {
    dir: tempfile::TempDir,
    binary: PathBuf,
    env: BTreeMap<OsString, OsString>,
    workspace: PathBuf,
}

impl Sandbox {
    /// Makes `home`, `store` (not yet there) and an empty workspace `w`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self::below(binary, &std::env::temp_dir())
    }

    /// The same, in a directory below `place`.
    pub fn below(binary: impl Into<PathBuf>, place: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("backtrail-test-").tempdir_in(place);
        let dir = dir.expect("temp dir");
        // The canonical spelling, so that paths in output can be compared.
        let top = fs::canonicalize(dir.path()).expect("canonical");
        for name in ["home", "w"] {
            fs::create_dir(top.join(name)).expect("mkdir");
        }
        let mut sandbox =
            Self { dir, binary: binary.into(), env: BTreeMap::new(), workspace: top.join("w") };
        sandbox.env("HOME", top.join("home"));
        sandbox.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        sandbox.env("BACKTRAIL_STORE", top.join("store"));
        // A test's files are seconds old; with the window every one would be read twice.
        sandbox.env("BACKTRAIL_SAFETY_WINDOW", "0");
        sandbox
    }

    /// The directory that holds all the others.
    pub fn top(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).expect("canonical")
    }
    /// The store.
    pub fn store(&self) -> PathBuf {
        self.top().join("store")
    }
    /// The home directory.
    pub fn home(&self) -> PathBuf {
        self.top().join("home")
    }
    /// The workspace: commands are started in it.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }
    /// Goes on in another workspace.
    pub fn set_workspace(&mut self, dir: impl Into<PathBuf>) {
        self.workspace = dir.into();
    }

    /// Sets a variable for the commands run from now on.
    pub fn env(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.env.insert(name.into(), value.as_ref().to_owned());
        self
    }
    /// Unsets a variable.
    pub fn env_remove(&mut self, name: &str) -> &mut Self {
        self.env.remove(OsStr::new(name));
        self
    }

    /// A path in the workspace.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.workspace.join(path)
    }
    /// Writes a file of the workspace, parents too.
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        let mut file =
            fs::File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        file.write_all(bytes.as_ref()).expect("write");
        path
    }
    /// Removes a file or a directory with all below it.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = self.path(path);
        let dir = fs::symlink_metadata(&path).expect("there").is_dir();
        if dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.expect("remove");
    }
    /// Sets permission bits.
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("chmod");
    }
    /// Makes a directory, parents too.
    pub fn mkdir(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(&path).expect("mkdir");
        path
    }
    /// Makes a link.
    pub fn link(&self, to: impl AsRef<Path>, path: impl AsRef<Path>) {
        symlink(to, self.path(path)).expect("link");
    }
    /// The workspace as it is.
    pub fn tree(&self) -> Tree {
        tree(&self.workspace)
    }

    /// The command, ready to be run or changed: started in the workspace, with nothing
    /// on standard input.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).current_dir(&self.workspace).env_clear().envs(&self.env);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Run {
        finish(self.command(args))
    }

    /// Runs a command that must end with 0 and reads its JSON.
    #[track_caller]
    pub fn ok<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        let args = args.into_iter().map(|a| a.as_ref().to_owned()).chain(["--json".into()]);
        self.run(args).expect(0).json()
    }

    /// Starts a command and leaves it running.
    pub fn spawn<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Child {
        self.command(args).spawn().expect("start")
    }

    /// Captures, and returns the id.
    #[track_caller]
    pub fn capture(&self) -> String {
        id(&self.ok(["capture"]))
    }
}

/// Member `id` of a JSON result.
#[track_caller]
pub fn id(json: &Value) -> String {
    json["id"].as_str().unwrap_or_else(|| panic!("no id in {json}")).to_owned()
}

/// Runs a prepared command to its end.
pub fn finish(mut command: Command) -> Run {
    let args = command.get_args().map(OsStr::to_owned).collect();
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Run {
        args,
        code: out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(0)),
        stdout: out.stdout,
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}
