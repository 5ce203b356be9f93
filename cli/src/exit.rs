//! Exit codes. They are an API: a script may rely on each of them.

use backtrail_core::error::{Error, Kind};

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

/// Complete.
pub(crate) const COMPLETE: Code = Code(0);
/// Failed for a reason of this host: no space, an unreadable root, an interruption.
pub(crate) const FAILED: Code = Code(1);
/// The request or a setting is malformed.
pub(crate) const USAGE: Code = Code(2);
/// Done, but something was kept or not covered.
pub(crate) const PARTIAL: Code = Code(3);
/// Conflict or refused; nothing was changed.
pub(crate) const REFUSED: Code = Code(4);
/// A lock is held by somebody else.
pub(crate) const BUSY: Code = Code(5);
/// Not found.
pub(crate) const NOT_FOUND: Code = Code(6);
/// Stored data is missing or wrong.
pub(crate) const CORRUPT: Code = Code(7);
/// The store cannot be reached, or refused access.
pub(crate) const UNAVAILABLE: Code = Code(8);
/// Waiting for a person: paused or parked.
pub(crate) const WAITING: Code = Code(9);

/// Ended by signal `n`.
pub(crate) fn signalled(n: u8) -> Code {
    Code(128_u8.saturating_add(n))
}

/// Standard output was closed by its reader, as after `| head`: what the shell shows
/// for a program that SIGPIPE ended.
pub(crate) fn pipe_closed() -> Code {
    signalled(13)
}

/// The code of an error.
pub(crate) fn of(error: &Error) -> Code {
    match error.kind() {
        Kind::NotFound => NOT_FOUND,
        Kind::Conflict | Kind::Refused | Kind::LostLease | Kind::Newer => REFUSED,
        Kind::Busy => BUSY,
        Kind::Invalid => USAGE,
        Kind::Corrupt => CORRUPT,
        Kind::Denied | Kind::Unavailable { .. } => UNAVAILABLE,
        Kind::Failed | Kind::Interrupted => FAILED,
        // `Kind` may grow; a kind this build does not know is a failure.
        _ => FAILED,
    }
}

/// From the one that counts most to the one that counts least.
const PRECEDENCE: [Code; 9] =
    [USAGE, CORRUPT, UNAVAILABLE, FAILED, BUSY, REFUSED, NOT_FOUND, WAITING, PARTIAL];

impl Code {
    /// The code to end with where both apply: a signal, then 2, 7, 8, 1, 5, 4, 6, 9, 3.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |c: Self| match c {
            COMPLETE => usize::MAX,
            c if c.0 > 128 => 0,
            c => 1 + PRECEDENCE.iter().position(|p| *p == c).unwrap_or(PRECEDENCE.len()),
        };
        if rank(other) < rank(self) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graver_code_wins() {
        for (a, b, want) in [
            (COMPLETE, PARTIAL, PARTIAL),
            (PARTIAL, WAITING, WAITING),
            (REFUSED, BUSY, BUSY),
            (FAILED, UNAVAILABLE, UNAVAILABLE),
            (CORRUPT, UNAVAILABLE, CORRUPT),
            (CORRUPT, signalled(2), signalled(2)),
            (COMPLETE, COMPLETE, COMPLETE),
        ] {
            assert_eq!(a.and(b), want);
            assert_eq!(b.and(a), want);
        }
        assert_eq!(signalled(15), Code(143));
    }

    #[test]
    fn every_kind_has_its_code() {
        for (kind, code) in [
            (Kind::Invalid, 2),
            (Kind::Refused, 4),
            (Kind::Busy, 5),
            (Kind::NotFound, 6),
            (Kind::Corrupt, 7),
            (Kind::Unavailable { maybe_applied: true }, 8),
            (Kind::Denied, 8),
            (Kind::Newer, 4),
            (Kind::LostLease, 4),
            (Kind::Failed, 1),
        ] {
            assert_eq!(of(&Error::new(kind, "x", "x")), Code(code));
        }
    }
}
