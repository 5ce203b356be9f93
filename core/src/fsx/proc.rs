//! Processes as `/proc` shows them. Where there is no `/proc` every list is empty.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The id of its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// True when it has ended and only waits to be reaped.
    pub zombie: bool,
    /// When it started, in clock ticks since boot. With the id it names a process for
    /// good: ids are used again, pairs are not.
    pub start: u64,
}

/// The most that is read of a process's environment: more than the system allows it.
const MAX_ENVIRONMENT: u64 = 8 << 20;
/// A command line is shown up to this many bytes.
const MAX_COMMAND: u64 = 200;

/// Every process; those that end meanwhile are left out.
pub fn processes() -> Vec<Process> {
    let Ok(rows) = std::fs::read_dir("/proc") else { return Vec::new() };
    rows.flatten()
        .filter_map(|row| row.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

/// The process `pid`.
pub fn process(pid: u32) -> Option<Process> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may hold anything.
    let after = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(after + 2..)?).ok()?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    let id = |i: usize| u32::try_from(number(i)?).ok();
    Some(Process {
        pid,
        parent: id(1)?,
        group: id(2)?,
        session: id(3)?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        // field 22 of proc(5); the first of `fields` is its third
        start: number(19)?,
    })
}

/// The user that owns `pid`.
pub fn process_owner(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

/// True if `pid` was started with all of these `NAME=value` in its environment. False
/// where reading it is not allowed.
pub fn process_has(pid: u32, variables: &[Vec<u8>]) -> bool {
    let all = environment(pid);
    variables.iter().all(|v| all.split(|b| *b == 0).any(|e| e == &v[..]))
}

/// The value with which `pid` was started of a variable.
pub fn process_variable(pid: u32, name: &str) -> Option<Vec<u8>> {
    let all = environment(pid);
    let mut entries = all.split(|b| *b == 0);
    entries.find_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec))
}

fn environment(pid: u32) -> Vec<u8> {
    let mut all = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/environ"));
    let read = file.and_then(|f| f.take(MAX_ENVIRONMENT).read_to_end(&mut all));
    if read.is_ok() { all } else { Vec::new() }
}

/// The command line of `pid`, shortened, or its program's name in brackets.
pub fn process_command(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(MAX_COMMAND).read_to_end(&mut bytes).ok()?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        return Some(format!("[{}]", name.trim_end()));
    }
    let words = bytes.split(|b| *b == 0).map(String::from_utf8_lossy);
    Some(words.collect::<Vec<_>>().join(" "))
}

/// The processes, other than `except`, that hold the file with this device and inode open.
pub fn holders_of(device: u64, inode: u64, except: u32) -> Vec<u32> {
    let holds = |pid: u32| {
        let Ok(rows) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        rows.flatten().any(|row| {
            let open = std::fs::metadata(row.path());
            open.is_ok_and(|m| m.dev() == device && m.ino() == inode)
        })
    };
    processes().into_iter().map(|p| p.pid).filter(|p| *p != except && holds(*p)).collect()
}
