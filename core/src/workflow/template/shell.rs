//! Where the `{{ }}` of a command text stand in the eyes of a shell.

use std::ops::Range;

/// A `{{ }}` of a command text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Its bytes, braces included.
    pub range: Range<usize>,
    /// It stands between quotes of the shell.
    pub quoted: bool,
    /// `raw` comes last.
    pub raw: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// The `{{ }}` of a command text, in order.
pub fn emits(text: &str) -> Vec<Emit> {
    let (mut out, mut quote, mut at) = (Vec::new(), Quote::None, 0);
    while at < text.len() {
        let rest = &text[at..];
        if let Some(end) = tag_end(rest, "{{", "}}") {
            let inner = rest[2..end - 2].trim_matches(['-', '+']).trim_end();
            let raw = inner.rsplit_once('|').is_some_and(|(_, last)| last.trim() == "raw");
            out.push(Emit { range: at..at + end, quoted: quote != Quote::None, raw });
            at += end;
        } else if let Some(end) = tag_end(rest, "{#", "#}").or_else(|| raw_block(rest)) {
            at += end;
        } else if let Some(end) = tag_end(rest, "{%", "%}") {
            at += end;
        } else {
            let mut chars = rest.chars();
            let c = chars.next().unwrap_or_default();
            at += c.len_utf8();
            quote = match (quote, c) {
                (Quote::None, '\'') => Quote::Single,
                (Quote::None, '"') => Quote::Double,
                (Quote::Single, '\'') | (Quote::Double, '"') => Quote::None,
                (Quote::None | Quote::Double, '\\') => {
                    at += chars.next().filter(|c| !"{".contains(*c)).map_or(0, char::len_utf8);
                    quote
                }
                _ => quote,
            };
        }
    }
    out
}

/// The length of a tag at the start of `rest`; strings inside it may hold the closing mark.
fn tag_end(rest: &str, open: &str, close: &str) -> Option<usize> {
    let body = rest.strip_prefix(open)?;
    let mut inside: Option<char> = None;
    for (at, c) in body.char_indices() {
        match inside {
            None if body[at..].starts_with(close) => return Some(open.len() + at + close.len()),
            None if open != "{#" && (c == '\'' || c == '"') => inside = Some(c),
            Some(quote) if c == quote => inside = None,
            _ => {}
        }
    }
    None
}

/// The length of `{% raw %}…{% endraw %}`, whose braces are data.
fn raw_block(rest: &str) -> Option<usize> {
    let start = tag_end(rest, "{%", "%}")?;
    let word = rest[2..start - 2].trim_matches(['-', '+']).trim();
    let end = if word == "raw" { rest.find("endraw")? } else { return None };
    Some(end + rest[end..].find("%}")? + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_the_shell_are_seen() {
        let quoted = |text: &str| emits(text).iter().map(|e| e.quoted).collect::<Vec<_>>();
        assert_eq!(
            quoted("echo {{ a }} '{{ b }}' \"{{ c }}\" {{ d }}"),
            [false, true, true, false]
        );
        assert_eq!(quoted("echo it\\'s {{ a }}"), [false]);
        assert_eq!(quoted("echo {{ a ~ '}}\"' }} {{ b }}"), [false, false]);
        assert_eq!(quoted("{% raw %}'{{ a }}{% endraw %} {{ b }}"), [false]);
        assert_eq!(quoted("{# ' #}{% if a == 'x' %}'{% endif %}{{ b }}"), [true]);
        assert!(emits("echo '{{ a | raw }}'")[0].raw);
        assert!(emits("{{ open").is_empty());
    }
}
