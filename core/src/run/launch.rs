//! What of the environment a run's record remembers, and the redactor of its URLs.

use std::collections::BTreeMap;

use crate::redact::is_secret_name;

/// Words in the name of a URL's query key that make its value a secret.
const SECRET_QUERY: &[&str] = &["token", "key", "secret", "password", "cred"];

/// The part of an environment that a record keeps: names beginning `BACKTRAIL_`, empty
/// values dropped, secrets as `[redacted]`, URLs without credentials.
///
/// ```
/// use backtrail_core::run::launch_env;
/// let env = launch_env([("BACKTRAIL_STORE", "mongodb://u:p@h/db"), ("PATH", "/bin")]);
/// assert_eq!(env["BACKTRAIL_STORE"], "mongodb://***@h/db");
/// assert_eq!(env.len(), 1);
/// ```
pub fn launch_env<'e>(
    environment: impl IntoIterator<Item = (&'e str, &'e str)>,
) -> BTreeMap<String, String> {
    let ours =
        environment.into_iter().filter(|(n, v)| n.starts_with("BACKTRAIL_") && !v.is_empty());
    ours.map(|(name, value)| {
        let secret = is_secret_name(name);
        let kept = if secret { String::from("[redacted]") } else { redact_url(value) };
        (name.to_owned(), kept)
    })
    .collect()
}

/// A URL with its user info and the values of secret query keys as `***`; other text as
/// it is. A password may hold a sign that it must not, so where URLs have user info all
/// before the last `@` counts as that.
///
/// ```
/// use backtrail_core::run::redact_url;
/// assert_eq!(redact_url("mongodb://u:p/w@h/db?tlsKeyPassword=x"), "mongodb://***@h/db?tlsKeyPassword=***");
/// assert_eq!(redact_url("s3://bucket/a@b"), "s3://bucket/a@b");
/// ```
pub fn redact_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = match scheme {
        "s3" | "file" | "mem" => rest.find(['/', '?', '#']).unwrap_or(rest.len()),
        _ => rest.len(),
    };
    let (stars, rest) = match rest[..authority].rfind('@') {
        Some(at) => ("***@", &rest[at + 1..]),
        None => ("", rest),
    };
    let Some((path, query)) = rest.split_once('?') else {
        return format!("{scheme}://{stars}{rest}");
    };
    let pairs: Vec<String> = query.split('&').map(redact_pair).collect();
    format!("{scheme}://{stars}{path}?{}", pairs.join("&"))
}

/// True for the name of an option in a URL whose value is a secret.
pub fn is_secret_option(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_QUERY.iter().any(|word| name.contains(word))
}

fn redact_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, _)) if is_secret_option(key) => format!("{key}=***"),
        _ => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_rs20_launch_env_holds_no_secret() {
        let env = [
            ("BACKTRAIL_A", "1"),
            ("BACKTRAIL_B", ""),
            ("BACKTRAIL_C_TOKEN", "hunter2"),
            ("PATH", "/usr/bin"),
            ("BACKTRAIL_QUEUE", "nats://me:pw@host:4222?auth_token=x&b=2"),
        ];
        let kept = launch_env(env);
        let want = [
            ("BACKTRAIL_A", "1"),
            ("BACKTRAIL_C_TOKEN", "[redacted]"),
            ("BACKTRAIL_QUEUE", "nats://***@host:4222?auth_token=***&b=2"),
        ];
        let want = want.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(kept, BTreeMap::from(want));
    }
}
