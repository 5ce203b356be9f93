//! The one place that prints a store's URL and finds what of it is secret.

use backtrail_core::error::Result;
use backtrail_core::redact::{Redactor, Secrets};

/// Parts of an option's name that say that its value is secret.
const SECRET: [&str; 5] = ["token", "key", "secret", "password", "cred"];

struct Parts<'u> {
    scheme: &'u str,
    user: Option<&'u str>,
    place: &'u str,
    query: &'u str,
}

/// A URL taken apart, whatever is wrong with it. Everything before the last `@` is taken
/// to be secret, also when a password holds a sign that it must not.
fn parts(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    Some(Parts { scheme, user, place, query })
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// A URL for messages, logs and JSON: without user, password and secret options.
///
/// ```
/// use backtrail_backends::redact::shown;
/// assert_eq!(shown("mongodb://ann:pw@host/db"), "mongodb://***@host/db");
/// assert_eq!(shown("x://host/?tlsKeyPassword=1&w=2"), "x://host/?tlsKeyPassword=***&w=2");
/// assert_eq!(shown("/plain/path"), "/plain/path");
/// ```
pub fn shown(url: &str) -> String {
    let Some(Parts { scheme, user, place, query }) = parts(url) else { return url.to_owned() };
    let user = if user.is_some() { "***@" } else { "" };
    let option = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    };
    let query: Vec<String> = query.split('&').filter(|p| !p.is_empty()).map(option).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{place}{mark}{}", query.join("&"))
}

/// Finds the secrets of a URL in any text, in raw and encoded spelling.
pub fn secrets_of(url: &str) -> Result<Redactor> {
    let mut secrets = Secrets::default();
    if let Some(Parts { user, query, .. }) = parts(url) {
        let password = user.and_then(|u| u.split_once(':')).map(|(_, password)| password);
        let options = query.split('&').filter_map(|pair| pair.split_once('='));
        let hidden = options.filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        for value in password.into_iter().chain(hidden) {
            // One too short to be looked for is not in a message by chance either.
            let _ = secrets.declare("url", value.as_bytes());
            if let Some(plain) = decode(value) {
                let _ = secrets.declare("url", &plain);
            }
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
