//! Test faults of debug builds: `BACKTRAIL_FAULT=point:nth:kill|fail|stop` makes the
//! process die, the engine fail, or the process stop at the nth reach of a point.

use std::sync::Arc;

use backtrail_core::clock::{Faults, NoFaults};
use backtrail_core::error::Result;

use crate::env::Env;

/// The faults asked for; none in release builds.
#[cfg(not(debug_assertions))]
pub(crate) fn from_env(_: &Env) -> Result<Arc<dyn Faults>> {
    Ok(Arc::new(NoFaults))
}

/// The faults asked for.
#[cfg(debug_assertions)]
pub(crate) fn from_env(env: &Env) -> Result<Arc<dyn Faults>> {
    match env.text("BACKTRAIL_FAULT")? {
        None => Ok(Arc::new(NoFaults)),
        Some(text) => Ok(Arc::new(armed::Fault::parse(text)?)),
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    use backtrail_core::clock::Faults;
    use backtrail_core::error::{Error, Result};
    use rustix::process::{Signal, getpid, kill_process};

    enum Effect {
        Kill,
        Fail,
        Stop,
    }

    pub(super) struct Fault {
        point: String,
        left: AtomicU64,
        effect: Effect,
    }

    impl Fault {
        pub(super) fn parse(text: &str) -> Result<Self> {
            let bad = || {
                Error::invalid(format!(
                    "bad value for BACKTRAIL_FAULT: {text:?} is not point:nth:kill|fail|stop"
                ))
            };
            let mut parts = text.rsplitn(3, ':');
            let effect = match parts.next() {
                Some("kill") => Effect::Kill,
                Some("fail") => Effect::Fail,
                Some("stop") => Effect::Stop,
                _ => return Err(bad()),
            };
            let nth: u64 = parts.next().and_then(|n| n.parse().ok()).ok_or_else(bad)?;
            let point = parts.next().ok_or_else(bad)?.to_owned();
            Ok(Self { point, left: AtomicU64::new(nth), effect })
        }
    }

    impl Faults for Fault {
        fn reach(&self, point: &str) -> Result<()> {
            if point != self.point {
                return Ok(());
            }
            let left =
                self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            if left != Ok(1) {
                return Ok(());
            }
            let signal = match self.effect {
                Effect::Fail => {
                    return Err(Error::failed("fault", format!("test fault at {point}")));
                }
                Effect::Kill => Signal::KILL,
                Effect::Stop => Signal::STOP,
            };
            kill_process(getpid(), signal)
                .map_err(|e| Error::failed("fault", "test fault could not be sent").with_source(e))
        }
    }
}
