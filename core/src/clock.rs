//! Time, chance and the host as parameters: core reads none of them itself.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::{Error, Kind, Result};

/// A moment: nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// RFC 3339 UTC with nine digits, e.g. `2026-01-02T03:04:05.000000006Z`.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .map(|t| format!("{t:.9}"))
            .unwrap_or_else(|_| String::from("1970-01-01T00:00:00.000000000Z"))
    }

    /// Reads RFC 3339 of any offset and precision.
    pub fn parse(s: &str) -> Result<Self> {
        let t: jiff::Timestamp =
            s.parse().map_err(|_| Error::invalid(format!("{s:?} is no RFC 3339 time")))?;
        i64::try_from(t.as_nanosecond())
            .map(Self)
            .map_err(|_| Error::invalid(format!("time {s:?} is out of range")))
    }
}

/// Reads a duration that a person wrote: `500ms`, `30s`, `10m`, `8h`, `7d` or `0`.
///
/// ```
/// use backtrail_core::clock::parse_duration;
/// assert_eq!(parse_duration("2m"), Some(std::time::Duration::from_secs(120)));
/// assert_eq!(parse_duration("1h30"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let ms = match &text[end..] {
        "" if number == 0 => 0,
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        "d" => number.checked_mul(86_400_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(ms))
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The wall clock now.
    fn now(&self) -> Timestamp;
}

/// Where random ids come from.
pub trait IdSource: Send + Sync {
    /// Fills `buf` with random bytes. A failing source is an error, never zeros.
    fn fill(&self, buf: &mut [u8]) -> Result<()>;
}

impl dyn IdSource + '_ {
    /// `2 * n` lower-case hex digits of `n` random bytes.
    pub fn hex(&self, n: usize) -> Result<String> {
        let mut buf = vec![0; n];
        self.fill(&mut buf)?;
        Ok(crate::ids::to_hex(&buf))
    }
}

/// Who and where this process is: evidence for people and for identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Machine id, else the host name.
    pub machine: String,
    /// Boot id, changes at each boot.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot.
    pub pid_start: u64,
    /// Program name and version, e.g. `backtrail 0.1.0`.
    pub program: String,
    /// The home directory, when known.
    pub home: Option<std::path::PathBuf>,
}

/// A flag that asks a long operation to stop at its next check.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    set: AtomicBool,
    why: Mutex<Option<String>>,
}

impl Cancel {
    /// Asks to stop, saying why (`SIGINT`, `time limit`). The first reason stays.
    pub fn cancel(&self, why: impl Into<String>) {
        let mut slot = self.0.why.lock().unwrap_or_else(|e| e.into_inner());
        slot.get_or_insert_with(|| why.into());
        self.0.set.store(true, Ordering::SeqCst);
    }
    /// True once [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(Ordering::Relaxed)
    }
    /// Fails with `interrupted` once cancelled.
    pub fn check(&self) -> Result<()> {
        if !self.is_cancelled() {
            return Ok(());
        }
        let why = self.0.why.lock().unwrap_or_else(|e| e.into_inner());
        let why = why.as_deref().unwrap_or("cancelled");
        Err(Error::new(Kind::Interrupted, "interrupted", format!("interrupted by {why}")))
    }
}

/// Hears how far a long operation is. All methods may be called from any thread.
pub trait Progress: Send + Sync {
    /// A phase began (`walk`, `read`, `write`, …) with what it expects, when known.
    fn phase(&self, name: &str, files: Option<u64>, bytes: Option<u64>);
    /// `files` and `bytes` more are done in this phase.
    fn advance(&self, files: u64, bytes: u64);
}

/// A progress sink that hears nothing.
pub struct Silent;

impl Progress for Silent {
    fn phase(&self, _: &str, _: Option<u64>, _: Option<u64>) {}
    fn advance(&self, _: u64, _: u64) {}
}

/// Named points at which a test makes the engine fail, stop or die.
pub trait Faults: Send + Sync {
    /// Called when the engine reaches `point`, e.g. `capture.objects`.
    fn reach(&self, point: &str) -> Result<()>;
}

/// No faults.
pub struct NoFaults;

impl Faults for NoFaults {
    fn reach(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

/// What every operation of the engine is handed from outside.
#[derive(Clone)]
pub struct Context {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Random ids.
    pub ids: Arc<dyn IdSource>,
    /// This process and machine.
    pub host: Host,
    /// Asks the operation to stop.
    pub cancel: Cancel,
    /// Hears progress.
    pub progress: Arc<dyn Progress>,
    /// Test faults.
    pub faults: Arc<dyn Faults>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("host", &self.host).finish_non_exhaustive()
    }
}
