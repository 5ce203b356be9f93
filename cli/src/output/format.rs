//! Numbers, sizes, durations and ages as people read them.

use backtrail_core::clock::Timestamp;

/// `0 B`, `812 B`, `1.2 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `0.4 s`, `2 min 5 s`.
pub(crate) fn elapsed(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// How long ago `then` (RFC 3339) was: `just now`, `5 min ago`, `3 days ago`.
pub(crate) fn age(then: &str, now: Timestamp) -> String {
    let Ok(then) = Timestamp::parse(then) else { return then.to_owned() };
    let seconds = now.0.saturating_sub(then.0) / 1_000_000_000;
    let (n, unit) = match seconds {
        ..0 => return "in the future".to_owned(),
        0..10 => return "just now".to_owned(),
        10..60 => return format!("{seconds} s ago"),
        60..3600 => return format!("{} min ago", seconds / 60),
        3600..86_400 => return format!("{} h ago", seconds / 3600),
        86_400..2_592_000 => (seconds / 86_400, "day"),
        2_592_000..31_536_000 => (seconds / 2_592_000, "month"),
        _ => (seconds / 31_536_000, "year"),
    };
    format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
}

/// `1 file`, `3 files`.
pub(crate) fn count(n: u64, one: &str) -> String {
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {one}s"),
    }
}

/// Permission bits as `0644`.
pub(crate) fn mode(mode: u32) -> String {
    format!("{mode:04o}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_well() {
        assert_eq!(bytes(812), "812 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1_258_291), "1.2 MiB");
        assert_eq!(bytes(1_048_575), "1.0 MiB");
        assert_eq!(elapsed(420), "0.4 s");
        assert_eq!(elapsed(125_000), "2 min 5 s");
        assert_eq!(count(1, "directory"), "1 directory");
        assert_eq!(count(0, "directory"), "0 directories");
    }

    #[test]
    fn ages_are_rough() {
        let now = Timestamp::parse("2026-01-02T00:00:00Z").expect("time");
        assert_eq!(age("2026-01-01T23:59:55Z", now), "just now");
        assert_eq!(age("2026-01-01T23:00:00Z", now), "1 h ago");
        assert_eq!(age("2026-01-01T00:00:00Z", now), "1 day ago");
        assert_eq!(age("2026-01-03T00:00:00Z", now), "in the future");
    }
}
