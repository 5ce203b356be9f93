//! The known name that a mistyped one most likely means.

/// The candidate nearest to `word` by edit distance, when it is near enough to be meant.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|c| *c != word && c.len().abs_diff(word.len()) <= 4 * limit)
        .map(|c| (strsim::damerau_levenshtein(&word.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_recognised_and_another_word_is_not() {
        assert_eq!(nearest("plna", ["fix", "plan", "play"]), Some("plan"));
        assert_eq!(nearest("Retry", ["retry"]), Some("retry"));
        assert_eq!(nearest("build", ["deploy", "test"]), None);
        assert_eq!(nearest("ab", ["xy"]), None);
    }
}
