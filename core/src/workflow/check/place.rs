//! Where a piece of a template stands in the file.

use std::ops::Range;

use crate::workflow::file::definition::Template;
use crate::workflow::finding::Span;

/// The place of `range` of a template's text in the file; that of the whole template when
/// escapes hide it.
pub(super) fn place(source: &str, template: &Template, range: &Range<usize>) -> Span {
    found(source, template, range).unwrap_or(template.span)
}

fn found(source: &str, template: &Template, range: &Range<usize>) -> Option<Span> {
    let needle = template.text.get(range.clone()).filter(|n| !n.is_empty())?;
    let before = template.text.get(..range.start)?;
    // the same occurrence in the text as it is written
    let nth = template.text.match_indices(needle).take_while(|(at, _)| *at < before.len()).count();
    let raw = source.get(template.span.start..template.span.end)?;
    let (at, _) = raw.match_indices(needle).nth(nth)?;
    let start = template.span.start + at;
    let line = 1 + source[..start].matches('\n').count();
    let column = 1 + source[..start].rsplit('\n').next().unwrap_or_default().chars().count();
    let width = needle.lines().next().unwrap_or_default().chars().count();
    let end = start + needle.len();
    Some(Span { line, column, end_line: line, end_column: column + width, start, end })
}

/// The line of a template's `line`-th line, for an error that names no more.
pub(super) fn line_of(template: &Template, line: usize) -> Span {
    let span = template.span;
    if line <= 1 || span.end_line == span.line {
        return span;
    }
    let line = (span.line + line - 1).min(span.end_line);
    Span { line, column: 1, end_line: line, end_column: 2, ..span }
}
