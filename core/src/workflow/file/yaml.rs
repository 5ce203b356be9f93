//! YAML 1.2 with a place for every value, and nothing that grows without bound.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};

use super::scalar;
use crate::workflow::finding::{Code, Finding, Span};

/// The largest file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// How deep values may nest.
pub const MAX_DEPTH: usize = 64;
/// How many values aliases may expand to.
pub const MAX_ALIASED: usize = 100_000;

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) yaml: Yaml,
    pub(super) span: Span,
}

/// A key and its place.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Span,
}

/// Lists and maps are shared, so that an anchor costs nothing.
#[derive(Clone, Debug)]
pub(super) enum Yaml {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Rc<Vec<Node>>),
    Map(Rc<Vec<(Key, Node)>>),
}

impl Yaml {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(n) => Value::Number(n.clone()),
            Self::Text(s) => Value::String(s.clone()),
            Self::List(items) => items.iter().map(|n| n.yaml.json()).collect(),
            Self::Map(entries) => {
                let pairs = entries.iter().map(|(k, v)| (k.text.clone(), v.yaml.json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// An anchored value, how many values it holds, and how deep it is.
struct Anchored {
    node: Node,
    values: usize,
    depth: usize,
}

struct Loader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    places: Places,
    findings: Vec<Finding>,
    anchors: HashMap<usize, Anchored>,
    values: usize,
    aliased: usize,
    deepest: usize,
}

/// The one document of `text`; `None` when it cannot be read at all. The findings hold why,
/// and what else is wrong with it as YAML.
pub(super) fn load(text: &str) -> (Option<Node>, Vec<Finding>) {
    let mut loader = Loader {
        parser: Parser::new_from_str(text).keep_tags(false),
        places: Places::of(text),
        findings: Vec::new(),
        anchors: HashMap::new(),
        values: 0,
        aliased: 0,
        deepest: 0,
    };
    let node = match loader.document() {
        Ok(node) => Some(node),
        Err(finding) => {
            loader.findings.push(finding);
            None
        }
    };
    (node, loader.findings)
}

impl Loader<'_> {
    fn next(&mut self) -> Result<(Event<'static>, Span), Finding> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((owned(event), self.places.span(span.start, span.end))),
            Some(Err(e)) => {
                let at = self.places.span(*e.marker(), *e.marker());
                Err(Finding::new(Code::Syntax, at, e.info().to_owned()))
            }
            None => Ok((Event::StreamEnd, Span::start_of_file())),
        }
    }

    fn document(&mut self) -> Result<Node, Finding> {
        let mut document = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if document.is_some() => {
                    let text = "a workflow file holds one document";
                    self.findings.push(Finding::new(Code::NotAllowed, span, text));
                    break;
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    document = Some(self.node(event, span, 1)?);
                }
                _ => {}
            }
        }
        let empty = || Node { yaml: Yaml::Null, span: Span::start_of_file() };
        Ok(document.unwrap_or_else(empty))
    }

    fn node(&mut self, event: Event<'static>, span: Span, depth: usize) -> Result<Node, Finding> {
        if depth > MAX_DEPTH {
            let text = format!("values nest deeper than {MAX_DEPTH}");
            return Err(Finding::new(Code::TooLarge, span, text));
        }
        let (before, outer) = (self.values, std::mem::replace(&mut self.deepest, depth));
        self.values += 1;
        let (anchor, node) = match event {
            Event::Alias(id) => (0, self.alias(id, span, depth)?),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), span);
                (anchor, self.scalar(&text, style, span))
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), span);
                (anchor, self.list(span, depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), span);
                (anchor, self.map(span, depth)?)
            }
            _ => (0, Node { yaml: Yaml::Null, span }),
        };
        let (values, deepest) = (self.values - before, self.deepest);
        if anchor > 0 {
            let anchored = Anchored { node: node.clone(), values, depth: deepest - depth };
            self.anchors.insert(anchor, anchored);
        }
        self.deepest = outer.max(deepest);
        Ok(node)
    }

    fn refuse_tag(&mut self, tagged: bool, span: Span) {
        if tagged {
            let text = "tags are not used in workflow files";
            self.findings.push(Finding::new(Code::NotAllowed, span, text));
        }
    }

    fn alias(&mut self, id: usize, span: Span, depth: usize) -> Result<Node, Finding> {
        let Some(known) = self.anchors.get(&id) else {
            return Err(Finding::new(Code::Syntax, span, "an alias that stands inside itself"));
        };
        self.aliased += known.values;
        self.values += known.values;
        self.deepest = self.deepest.max(depth + known.depth);
        if self.aliased > MAX_ALIASED {
            let text = format!("aliases expand to more than {MAX_ALIASED} values");
            return Err(Finding::new(Code::TooLarge, span, text));
        }
        if self.deepest > MAX_DEPTH {
            let text = format!("values nest deeper than {MAX_DEPTH}");
            return Err(Finding::new(Code::TooLarge, span, text));
        }
        Ok(Node { yaml: known.node.yaml.clone(), span })
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, span: Span) -> Node {
        let yaml = match style {
            ScalarStyle::Plain => scalar::resolve(text).unwrap_or_else(|| {
                let what = format!("number {text} is out of range");
                self.findings.push(Finding::new(Code::BadValue, span, what));
                Yaml::Null
            }),
            _ => Yaml::Text(text.to_owned()),
        };
        Node { yaml, span }
    }

    fn list(&mut self, span: Span, depth: usize) -> Result<Node, Finding> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Node { yaml: Yaml::List(Rc::new(items)), span: until(span, at) });
            }
            items.push(self.node(event, at, depth + 1)?);
        }
    }

    fn map(&mut self, span: Span, depth: usize) -> Result<Node, Finding> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, at) = self.next()?;
            let key = match event {
                Event::MappingEnd => {
                    return Ok(Node { yaml: Yaml::Map(Rc::new(entries)), span: until(span, at) });
                }
                Event::Scalar(text, _, anchor, tag) => {
                    self.refuse_tag(tag.is_some(), at);
                    if anchor > 0 {
                        let node = Node { yaml: Yaml::Text(text.to_string()), span: at };
                        self.anchors.insert(anchor, Anchored { node, values: 1, depth: 0 });
                    }
                    Key { text: text.into_owned(), span: at }
                }
                other => {
                    // read past it, so that the rest is still looked at
                    self.node(other, at, depth + 1)?;
                    self.findings.push(Finding::new(Code::WrongType, at, "a key must be text"));
                    Key { text: String::new(), span: at }
                }
            };
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth + 1)?;
            if seen.insert(key.text.clone()) {
                entries.push((key, value));
            } else {
                let text = format!("key {:?} stands twice", key.text);
                self.findings.push(Finding::new(Code::DuplicateKey, key.span, text));
            }
        }
    }
}

fn owned(event: Event<'_>) -> Event<'static> {
    use std::borrow::Cow::Owned;
    match event {
        Event::Scalar(text, style, anchor, tag) => Event::Scalar(
            Owned(text.into_owned()),
            style,
            anchor,
            tag.map(|t| Owned(t.into_owned())),
        ),
        Event::SequenceStart(a, tag) => Event::SequenceStart(a, tag.map(|t| Owned(t.into_owned()))),
        Event::MappingStart(a, tag) => Event::MappingStart(a, tag.map(|t| Owned(t.into_owned()))),
        Event::Alias(id) => Event::Alias(id),
        Event::DocumentStart(explicit) => Event::DocumentStart(explicit),
        Event::Nothing => Event::Nothing,
        Event::StreamStart => Event::StreamStart,
        Event::StreamEnd => Event::StreamEnd,
        Event::DocumentEnd => Event::DocumentEnd,
        Event::SequenceEnd => Event::SequenceEnd,
        Event::MappingEnd => Event::MappingEnd,
    }
}

fn until(start: Span, end: Span) -> Span {
    Span { end_line: end.end_line, end_column: end.end_column, end: end.end, ..start }
}

/// Character index → byte offset.
enum Places {
    Ascii(usize),
    Bytes(Vec<usize>),
}

impl Places {
    fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self::Ascii(text.len());
        }
        let offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        Self::Bytes(offsets.collect())
    }

    fn byte(&self, index: usize) -> usize {
        match self {
            Self::Ascii(len) => index.min(*len),
            Self::Bytes(offsets) => offsets[index.min(offsets.len() - 1)],
        }
    }

    fn span(&self, start: Marker, end: Marker) -> Span {
        Span {
            line: start.line().max(1),
            column: start.col() + 1,
            end_line: end.line().max(1),
            end_column: end.col() + 1,
            start: self.byte(start.index()),
            end: self.byte(end.index()),
        }
    }
}
