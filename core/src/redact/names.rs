//! Which names of variables say that the value is secret.

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
}
