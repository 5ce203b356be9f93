//! `.pid` of a detached run: one decimal and a newline beside the record, for people. It is
//! evidence only: whether a run executes, its lock says.

use crate::error::{Error, IoContext as _, Result};
use crate::fsx::{self, Dir};

const NAME: &[u8] = b".pid";
/// No process number is longer.
const MAX_BYTES: u64 = 64;

/// Writes the number of a process into the directory of its run, whole or not at all.
pub fn write_pid(run: &Dir, pid: u32) -> Result<()> {
    let text = format!("{pid}\n");
    fsx::publish(run, NAME, b".tmp-pid", text.as_bytes(), false)
        .context(|| String::from("the .pid of the run cannot be written"))
}

/// The number there; `None` without a file. Fails with `bad-pid` when it is none above 0.
pub fn read_pid(run: &Dir) -> Result<Option<u32>> {
    let read = fsx::read_small(run, NAME, MAX_BYTES);
    let read = read.context(|| String::from("the .pid of the run cannot be read"))?;
    let Some(bytes) = read else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let pid = text.trim().parse::<i32>().ok().and_then(|pid| u32::try_from(pid).ok());
    match pid.filter(|pid| *pid > 0) {
        Some(pid) => Ok(Some(pid)),
        None => Err(Error::failed("bad-pid", format!("the .pid of the run holds {text:?}"))
            .with_hint("it is for people only; it may be deleted")),
    }
}

/// Removes it; one that is not there is fine.
pub fn remove_pid(run: &Dir) -> Result<()> {
    match run.unlink(NAME) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).context(|| String::from("the .pid of the run cannot be removed"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_lk02_a_pid_is_one_number_above_0_or_an_error() {
        let temp = tempfile::tempdir().expect("temp");
        let dir = Dir::open(temp.path()).expect("opens");
        assert_eq!(read_pid(&dir).expect("none"), None);
        remove_pid(&dir).expect("nothing to remove");
        for pid in [1, 4711, i32::MAX.cast_unsigned()] {
            write_pid(&dir, pid).expect("written");
            assert_eq!(read_pid(&dir).expect("read"), Some(pid));
        }
        let names = dir.names().expect("listed");
        assert_eq!(names, [NAME.to_vec()], "no temporary file stays");
        let put = |text: &[u8]| {
            fsx::publish(&dir, NAME, b".tmp-pid", text, false).expect("written");
        };
        for text in ["77", " 77\n", "\t77 \r\n\n"] {
            put(text.as_bytes());
            assert_eq!(read_pid(&dir).expect(text), Some(77), "{text:?}");
        }
        for text in ["", "\n", "abc", "0", "-1", "7 7", "0x7", "4294967296", "99999999999999"] {
            put(text.as_bytes());
            let e = read_pid(&dir).expect_err(text);
            assert_eq!(e.code(), "bad-pid", "{text:?}");
        }
        put(b"\xff\xfe");
        assert!(read_pid(&dir).is_err());
        remove_pid(&dir).expect("removed");
        remove_pid(&dir).expect("removed once more");
        assert_eq!(read_pid(&dir).expect("none"), None);
    }
}
