//! Secrets become `[redacted:NAME]` before anything is stored: in bytes as they stream
//! by, in text, and in JSON. Encoded forms of a secret are found as well.

mod forms;
mod json;
mod names;
mod stream;

use std::borrow::Cow;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Error, Result};

pub use names::is_secret_name;
pub use stream::Redaction;

/// A declared secret shorter than this is not looked for.
pub const MIN_DECLARED: usize = 4;
/// A guessed one shorter than this is not looked for.
pub const MIN_GUESSED: usize = 8;

/// The secrets of a run, while they are collected.
#[derive(Default)]
pub struct Secrets(Vec<(String, Vec<u8>)>);

impl Secrets {
    /// Adds a declared secret, or an input that is one. False, and no effect, when the
    /// value is too short to be looked for: the caller warns.
    #[must_use]
    pub fn declare(&mut self, name: &str, value: &[u8]) -> bool {
        let long = characters(value) >= MIN_DECLARED;
        if long {
            self.0.push((name.to_owned(), value.to_vec()));
        }
        long
    }

    /// Adds those variables of an environment whose names say that they are secret and
    /// whose values are long enough.
    pub fn guess<'e>(&mut self, environment: impl IntoIterator<Item = (&'e str, &'e [u8])>) {
        for (name, value) in environment {
            if is_secret_name(name) && characters(value) >= MIN_GUESSED {
                self.0.push((name.to_owned(), value.to_vec()));
            }
        }
    }

    /// Prepares the search.
    pub fn redactor(self) -> Result<Redactor> {
        let mut forms: Vec<(Vec<u8>, String)> = Vec::new();
        for (name, value) in self.0 {
            let replacement = format!("[redacted:{name}]");
            forms.extend(forms::of(&value).into_iter().map(|f| (f, replacement.clone())));
        }
        // The first name that claims a value keeps it.
        forms.sort_by(|a, b| a.0.cmp(&b.0));
        forms.dedup_by(|later, first| later.0 == first.0);
        if forms.is_empty() {
            return Ok(Redactor(None));
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(forms.iter().map(|(form, _)| form))
            .map_err(|e| Error::invalid(format!("the secrets cannot be looked for: {e}")))?;
        let (forms, replacements): (Vec<_>, _) = forms.into_iter().unzip();
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        Ok(Redactor(Some(Arc::new(Search { finder, forms, longest, replacements }))))
    }
}

/// Replaces secrets. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Search>>);

struct Search {
    finder: AhoCorasick,
    /// Sorted.
    forms: Vec<Vec<u8>>,
    longest: usize,
    replacements: Vec<String>,
}

/// Secrets are not shown.
impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

impl Redactor {
    /// One that knows no secrets.
    pub fn none() -> Self {
        Self(None)
    }

    /// Begins a stream, in which a secret may be split over pieces.
    pub fn start(&self) -> Redaction {
        Redaction::new(self.clone())
    }

    /// Replaces secrets in whole bytes.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut redaction = self.start();
        redaction.push(bytes, &mut out);
        redaction.finish(&mut out);
        out
    }

    /// Replaces secrets in text.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(search) if search.finder.is_match(text) => {
                // Forms may be any bytes, but what is between them was text before.
                Cow::Owned(String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned())
            }
            _ => Cow::Borrowed(text),
        }
    }
}

/// The length of a value as a person counts it.
fn characters(value: &[u8]) -> usize {
    String::from_utf8_lossy(value).chars().count()
}

#[cfg(test)]
mod tests;
