//! Reading values by type: what is wrong becomes a finding, and reading goes on.

use std::time::Duration;

use super::definition::{Template, Templated};
use super::yaml::{Key, Node, Yaml};
use crate::clock::parse_duration;
use crate::workflow::finding::{Code, Finding, Span, Spanned};

/// What reading found so far.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) findings: Vec<Finding>,
}

/// The entries of a map whose keys are known.
pub(super) struct Fields<'a> {
    entries: &'a [(Key, Node)],
    pub(super) span: Span,
    what: String,
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }
}

impl Reader {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn wrong(&mut self, node: &Node, what: &str, wanted: &str) {
        let text = format!("{what} must be {wanted}, not {}", node.yaml.kind());
        self.add(Finding::new(Code::WrongType, node.span, text));
    }

    /// The entries of a map; keys that are not `known` are findings.
    pub(super) fn fields<'a>(
        &mut self,
        node: &'a Node,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'a>> {
        let entries = self.map(node, what)?;
        for (key, _) in entries {
            if !known.contains(&key.text.as_str()) {
                let text = format!("{what} has no key {:?}", key.text);
                let finding = Finding::new(Code::UnknownKey, key.span, text);
                self.add(finding.did_you_mean(&key.text, known.iter().copied()));
            }
        }
        Some(Fields { entries, span: node.span, what: what.to_owned() })
    }

    /// The value of a key that must be there.
    pub(super) fn required<'a>(&mut self, fields: &Fields<'a>, key: &str) -> Option<&'a Node> {
        let found = fields.get(key);
        if found.is_none() {
            let text = format!("{} lacks the key {key:?}", fields.what);
            self.add(Finding::new(Code::MissingKey, fields.span, text));
        }
        found
    }

    pub(super) fn map<'a>(&mut self, node: &'a Node, what: &str) -> Option<&'a [(Key, Node)]> {
        match &node.yaml {
            Yaml::Map(entries) => Some(entries),
            _ => {
                self.wrong(node, what, "a map");
                None
            }
        }
    }

    pub(super) fn list<'a>(&mut self, node: &'a Node, what: &str) -> Option<&'a [Node]> {
        match &node.yaml {
            Yaml::List(items) => Some(items),
            _ => {
                self.wrong(node, what, "a list");
                None
            }
        }
    }

    pub(super) fn text(&mut self, node: &Node, what: &str) -> Option<Spanned<String>> {
        match &node.yaml {
            Yaml::Text(text) => Some(Spanned::new(text.clone(), node.span)),
            _ => {
                self.wrong(node, what, "text");
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, node: &Node, what: &str) -> Option<bool> {
        match &node.yaml {
            Yaml::Bool(b) => Some(*b),
            _ => {
                self.wrong(node, what, "true or false");
                None
            }
        }
    }

    /// A whole number from `min` to `max`.
    pub(super) fn whole(&mut self, node: &Node, what: &str, min: u64, max: u64) -> Option<u64> {
        let Yaml::Number(number) = &node.yaml else {
            self.wrong(node, what, "a whole number");
            return None;
        };
        match number.as_u64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                let range = if max == u64::MAX {
                    format!("of at least {min}")
                } else {
                    format!("from {min} to {max}")
                };
                let text = format!("{what} must be a whole number {range}, not {number}");
                self.add(Finding::new(Code::BadValue, node.span, text));
                None
            }
        }
    }

    /// A number for which `ok` holds.
    pub(super) fn number(
        &mut self,
        node: &Node,
        what: &str,
        form: &str,
        ok: impl Fn(f64) -> bool,
    ) -> Option<f64> {
        let Yaml::Number(number) = &node.yaml else {
            self.wrong(node, what, "a number");
            return None;
        };
        let value = number.as_f64().filter(|n| ok(*n));
        if value.is_none() {
            let text = format!("{what} must be {form}, not {number}");
            self.add(Finding::new(Code::BadValue, node.span, text));
        }
        value
    }

    pub(super) fn duration(&mut self, node: &Node, what: &str) -> Option<Duration> {
        let shown = match &node.yaml {
            Yaml::Text(text) => match parse_duration(text) {
                Some(d) => return Some(d),
                None => format!("{text:?}"),
            },
            Yaml::Number(n) => n.to_string(),
            other => other.kind().to_owned(),
        };
        let text = format!("{what} must be a duration, not {shown}");
        let finding = Finding::new(Code::BadDuration, node.span, text);
        self.add(finding.help("write a number and a unit, such as 500ms, 30s, 10m or 8h"));
        None
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        what: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(node, what)?.value;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("{what} must be one of {}, not {text:?}", names.join(", "));
        let finding = Finding::new(Code::BadValue, node.span, message);
        self.add(finding.did_you_mean(&text, names));
        None
    }

    /// Text that may be a template. Numbers and true or false are taken as their text.
    pub(super) fn template(&mut self, node: &Node, what: &str) -> Option<Template> {
        let text = match &node.yaml {
            Yaml::Text(text) => text.clone(),
            Yaml::Number(n) => n.to_string(),
            Yaml::Bool(b) => b.to_string(),
            _ => {
                self.wrong(node, what, "text");
                return None;
            }
        };
        Some(Template { text, span: node.span })
    }

    /// An id of a node, a loop, an input or a variable.
    pub(super) fn id(&mut self, text: &str, span: Span, what: &str) -> bool {
        let ok = (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !ok {
            let text = format!("{what} {text:?} is not valid");
            let form = "1-64 letters, digits and _, not beginning with a digit";
            self.add(Finding::new(Code::BadId, span, text).help(form));
        }
        ok
    }
}

/// A value whose texts are templates.
pub(super) fn templated(node: &Node) -> Templated {
    match &node.yaml {
        Yaml::Text(text) => Templated::Text(Template { text: text.clone(), span: node.span }),
        Yaml::List(items) => Templated::List(items.iter().map(templated).collect()),
        Yaml::Map(entries) => Templated::Map(
            entries.iter().map(|(key, value)| (key.text.clone(), templated(value))).collect(),
        ),
        other => Templated::Constant(other.json()),
    }
}
