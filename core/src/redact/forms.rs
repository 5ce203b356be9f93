//! The forms in which a secret may appear: plain, as a line, in JSON, percent-encoded,
//! and in base64 wherever its bytes begin.

/// Encoded forms shorter than this would be found by accident.
const MIN_ENCODED: usize = 8;
/// Lines of a secret of many lines that are looked for alone.
const MIN_LINE: usize = 16;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// All forms of `value`, the plain one first.
pub(super) fn of(value: &[u8]) -> Vec<Vec<u8>> {
    let mut out = vec![value.to_vec()];
    let trimmed = value.trim_ascii();
    let mut plain = vec![value];
    if trimmed.len() < value.len() && trimmed.len() >= MIN_ENCODED {
        out.push(trimmed.to_vec());
        plain.push(trimmed);
    }
    if value.contains(&b'\n') {
        let lines = value.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
        out.extend(lines.filter(|l| l.len() >= MIN_LINE).map(<[u8]>::to_vec));
    }
    let mut encoded = Vec::new();
    for plain in plain {
        encoded.extend([percent(plain, true), percent(plain, false)]);
        encoded.extend(std::str::from_utf8(plain).map(json));
        for alphabet in [STANDARD, URL] {
            encoded.extend((0..3).map(|before| base64(plain, before, alphabet)));
        }
    }
    out.extend(encoded.into_iter().filter(|f| f.len() >= MIN_ENCODED));
    out.sort();
    out.dedup();
    out
}

/// Every byte but the unreserved ones as `%XX`.
fn percent(value: &[u8], upper: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for b in value {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*b),
            _ if upper => out.extend(format!("%{b:02X}").into_bytes()),
            _ => out.extend(format!("%{b:02x}").into_bytes()),
        }
    }
    out
}

/// As it stands between quotes in JSON.
fn json(value: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

/// The digits that `value` alone decides when `before` other bytes, modulo 3, stand
/// before it and any stand behind.
fn base64(value: &[u8], before: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let first = (before * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    let digit = |i: usize| {
        let (byte, shift) = (i * 6 / 8, i * 6 % 8);
        let pair =
            u16::from(bytes[byte]) << 8 | u16::from(bytes.get(byte + 1).copied().unwrap_or(0));
        alphabet[usize::from(pair >> (10 - shift) & 63)]
    };
    (first..end).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_digits_are_those_between_any_neighbours() {
        // "user:" + secret + "\n", and the secret alone
        let secret = b"pa55w0rd-longer";
        assert_eq!(base64(secret, 0, STANDARD), b"cGE1NXcwcmQtbG9uZ2Vy");
        let whole = "dXNlcjpwYTU1dzByZC1sb25nZXIK";
        let inside = String::from_utf8(base64(secret, 2, STANDARD)).expect("digits");
        assert!(whole.contains(&inside), "{inside} in {whole}");
        assert!(inside.len() >= 19);
    }

    #[test]
    fn forms_that_are_too_short_are_left_out() {
        let forms = of(b"a/b?");
        assert_eq!(forms, [b"a%2Fb%3F".to_vec(), b"a%2fb%3f".to_vec(), b"a/b?".to_vec()]);
    }
}
