//! Test faults of debug builds: `BACKTRAIL_FAULT=point:nth:kill|fail|stop` makes the
//! process die, the engine fail, or the process stop at the nth reach of a point.

use std::sync::Arc;

use backtrail_core::clock::{Faults, NoFaults};

use crate::env::Env;

/// The faults asked for; none in release builds.
#[cfg(not(debug_assertions))]
pub(crate) fn from_env(_: &Env) -> Arc<dyn Faults> {
    Arc::new(NoFaults)
}

/// The faults asked for.
#[cfg(debug_assertions)]
pub(crate) fn from_env(env: &Env) -> Arc<dyn Faults> {
    match env.raw("BACKTRAIL_FAULT") {
        None => Arc::new(NoFaults),
        Some(text) => {
            let text = text.to_string_lossy();
            Arc::new(
                armed::Fault::parse(&text).expect("BACKTRAIL_FAULT is point:nth:kill|fail|stop"),
            )
        }
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
        pub(super) fn parse(text: &str) -> Option<Self> {
            let mut parts = text.rsplitn(3, ':');
            let effect = match parts.next()? {
                "kill" => Effect::Kill,
                "fail" => Effect::Fail,
                "stop" => Effect::Stop,
                _ => return None,
            };
            let nth: u64 = parts.next()?.parse().ok()?;
            Some(Self { point: parts.next()?.to_owned(), left: AtomicU64::new(nth), effect })
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
