//! Which names of variables say that the value is secret.

use std::collections::BTreeMap;

const WORDS: [&str; 6] = ["TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH"];

/// True if a name holds TOKEN, KEY, SECRET, PASSWORD, CREDENTIAL or AUTH in any case.
/// The AUTH of an author (`GIT_AUTHOR_NAME`) does not count, that of `AUTHORIZATION` does.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| match *word {
        "AUTH" => name.match_indices(word).any(|(at, _)| {
            let after = &name[at + word.len()..];
            !after.starts_with("OR") || after.starts_with("ORIZ") || after.starts_with("ORIS")
        }),
        word => name.contains(word),
    })
}

/// What a run records of the environment it was started in: names that begin with
/// `BACKTRAIL_`, empty ones dropped, secrets as `[redacted]`. URLs are the caller's to
/// clean.
pub fn launch_environment<'e>(
    environment: impl IntoIterator<Item = (&'e str, &'e str)>,
) -> BTreeMap<String, String> {
    let ours =
        environment.into_iter().filter(|(n, v)| n.starts_with("BACKTRAIL_") && !v.is_empty());
    ours.map(|(name, value)| {
        let value = if is_secret_name(name) { "[redacted]" } else { value };
        (name.to_owned(), value.to_owned())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_words() {
        for secret in ["API_TOKEN", "MyApiKey", "AUTH", "HTTP_AUTHORIZATION", "DB_PASSWORD_2"] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for plain in ["PATH", "HOME", "GIT_AUTHOR_NAME", "CI"] {
            assert!(!is_secret_name(plain), "{plain}");
        }
    }

    #[test]
    fn only_our_own_variables_are_recorded() {
        let env =
            [("BACKTRAIL_A", "1"), ("BACKTRAIL_B", ""), ("BACKTRAIL_C_TOKEN", "x"), ("P", "q")];
        let kept: Vec<_> = launch_environment(env).into_iter().collect();
        let expected = [("BACKTRAIL_A", "1"), ("BACKTRAIL_C_TOKEN", "[redacted]")];
        assert_eq!(kept, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
}
