//! Texts that people write for sizes, durations and counts.

use std::path::PathBuf;
use std::time::Duration;

use backtrail_backends::open::check_tenant;
use backtrail_core::clock::parse_duration;

const MAX_SIZE: u64 = 1 << 40;

/// `32MiB`, `40MB` or plain bytes; from 1 to 1 TiB.
pub(crate) fn size(s: &str) -> Result<u64, String> {
    let form = || format!("{s:?} is no size from 1 to 1TiB, such as 32MiB, 40MB or 1048576");
    let (number, unit) = split(s).ok_or_else(form)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(form()),
    };
    let bytes = number.checked_mul(factor).ok_or_else(form)?;
    if (1..=MAX_SIZE).contains(&bytes) { Ok(bytes) } else { Err(form()) }
}

/// `500ms`, `30s`, `10m`, `8h` or `7d`; not zero.
pub(crate) fn duration(s: &str) -> Result<Duration, String> {
    match parse_duration(s) {
        Some(d) if !d.is_zero() => Ok(d),
        _ => Err(format!("{s:?} is no duration, such as 500ms, 30s, 10m, 8h or 7d")),
    }
}

/// As [`duration`], or `0`.
pub(crate) fn duration_from_zero(s: &str) -> Result<Duration, String> {
    parse_duration(s)
        .ok_or_else(|| format!("{s:?} is no duration, such as 0, 500ms, 30s, 10m, 8h or 7d"))
}

/// From 0 to an hour.
pub(super) fn safety_window(s: &str) -> Result<Duration, String> {
    let d = duration_from_zero(s)?;
    if d > Duration::from_secs(3600) {
        return Err(format!("{s:?} is above 3600s"));
    }
    Ok(d)
}

/// From 1 s to 10 min.
pub(super) fn lease_ttl(s: &str) -> Result<Duration, String> {
    let d = duration(s)?;
    match (Duration::from_secs(1)..=Duration::from_secs(600)).contains(&d) {
        true => Ok(d),
        false => Err(format!("{s:?} is not from 1s to 10m")),
    }
}

/// The name of a tenant.
pub(super) fn tenant(s: &str) -> Result<String, String> {
    check_tenant(s).map(|()| s.to_owned()).map_err(|e| e.message().to_owned())
}

/// A whole number from 1 to `max`.
pub(super) fn count(s: &str, max: u64) -> Result<u64, String> {
    match s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u64>()) {
        Some(Ok(n)) if (1..=max).contains(&n) => Ok(n),
        _ if max == u64::MAX => Err(format!("{s:?} is no whole number above 0")),
        _ => Err(format!("{s:?} is no whole number from 1 to {max}")),
    }
}

/// The index of `s` in `allowed`.
pub(super) fn word(s: &str, allowed: &[&str]) -> Result<usize, String> {
    let found = allowed.iter().position(|a| *a == s);
    found.ok_or_else(|| format!("{s:?} is not one of {}", allowed.join(", ")))
}

/// An absolute directory.
pub(super) fn directory(s: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(s);
    if path.is_absolute() { Ok(path) } else { Err(format!("{s:?} is no absolute path")) }
}

/// True for a URL that carries a password.
pub(super) fn has_user_info(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

fn split(s: &str) -> Option<(u64, &str)> {
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    Some((s[..end].parse().ok()?, &s[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        for (s, n) in [("32MiB", 32 << 20), ("40MB", 40_000_000), ("7", 7), ("1TiB", 1 << 40)] {
            assert_eq!(size(s), Ok(n));
        }
        for s in ["500ms", "30s", "8h", "7d"] {
            assert!(duration(s).is_ok());
        }
        for s in ["", "0", "-1s", "5", "1h30", "s", "99999999999999999999s", "1.5h"] {
            assert!(duration(s).is_err(), "{s}");
        }
        assert_eq!(duration_from_zero("0"), Ok(Duration::ZERO));
        assert!(safety_window("2h").is_err());
        assert!(count("+5", 9).is_err() && count("10", 9).is_err() && count("9", 9).is_ok());
    }

    #[test]
    fn passwords_are_seen() {
        assert!(has_user_info("mongodb://u:p@h/db"));
        assert!(!has_user_info("mongodb://h/db?x=a:b@c"));
        assert!(!has_user_info("/a:b@c"));
    }
}
