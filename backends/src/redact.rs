//! What of a store's URL is secret. Shown is a URL by [`backtrail_core::run::redact_url`].

use backtrail_core::error::Result;
use backtrail_core::redact::{Redactor, Secrets};
use backtrail_core::run::is_secret_option;

/// Finds the secrets of a URL in any text, in raw and encoded spelling.
pub fn secrets_of(url: &str) -> Result<Redactor> {
    let mut secrets = Secrets::default();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (user, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let password = user.split_once(':').map(|(_, password)| password);
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let options = query.split('&').filter_map(|pair| pair.split_once('='));
    let hidden = options.filter(|(name, _)| is_secret_option(name)).map(|(_, value)| value);
    for value in password.into_iter().chain(hidden) {
        // One too short to be looked for would be found by accident everywhere.
        let _ = secrets.declare("url", value.as_bytes());
        if let Some(plain) = decode(value) {
            let _ = secrets.declare("url", &plain);
        }
    }
    secrets.redactor()
}

/// Text with its %-escapes read; `None` when one is bad or is NUL.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
        out.push(u8::try_from(value).ok().filter(|b| *b != 0)?);
    }
    Some(out)
}
