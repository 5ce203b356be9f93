//! Redaction of bytes as they come: only what may be the beginning of a secret waits.

use super::{Redactor, Search};

/// One stream of bytes being redacted.
pub struct Redaction {
    redactor: Redactor,
    /// May begin a secret: shown when the next bytes say that it does not.
    held: Vec<u8>,
}

impl Redaction {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }

    /// Takes the next bytes and adds to `out` all that can be shown by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(search) = &self.redactor.0 else { return out.extend_from_slice(bytes) };
        self.held.extend_from_slice(bytes);
        let shown = search.show(&self.held, false, out);
        self.held.drain(..shown);
    }

    /// The stream has ended: adds the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(search) = &self.redactor.0 {
            search.show(&self.held, true, out);
        }
        self.held.clear();
    }
}

impl Search {
    /// Adds to `out` what of `bytes` can be shown, secrets replaced; how much that was.
    /// With `last` no more bytes come.
    fn show(&self, bytes: &[u8], last: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        let mut end = if last { bytes.len() } else { self.undecided(bytes, 0) };
        // A match that begins before `end` is the longest there can be: a longer one
        // would have made its own beginning undecided.
        while let Some(found) = self.finder.find(aho_corasick::Input::new(bytes).range(at..)) {
            if found.start() >= end {
                break;
            }
            out.extend_from_slice(&bytes[at..found.start()]);
            out.extend_from_slice(self.replacements[found.pattern().as_usize()].as_bytes());
            at = found.end();
            if at > end {
                end = self.undecided(bytes, at);
            }
        }
        out.extend_from_slice(&bytes[at..end]);
        end
    }

    /// Where the longest end of `bytes[from..]` begins that a secret begins with.
    fn undecided(&self, bytes: &[u8], from: usize) -> usize {
        let first = from.max((bytes.len() + 1).saturating_sub(self.longest));
        (first..bytes.len()).find(|at| self.begins_with(&bytes[*at..])).unwrap_or(bytes.len())
    }

    /// True if some form is longer than `start` and begins with it.
    fn begins_with(&self, start: &[u8]) -> bool {
        let at = self.forms.partition_point(|f| f.as_slice() <= start);
        self.forms.get(at).is_some_and(|f| f.starts_with(start))
    }
}
