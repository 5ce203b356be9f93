//! Labels: the allowed form, reserved prefixes, and boundary labels in parts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The prefixes that only the engine, `runs boundary` and the library write.
pub const RESERVED: [&str; 10] = [
    "pre:",
    "post:",
    "fail:",
    "pause:",
    "resume:",
    "gate:",
    "step:",
    "bank:",
    "rewound:",
    "checkpoint:",
];
/// Reserved as well, kept apart because it is the longest.
pub const PRE_CLEAN: &str = "pre-clean:";

const FORM: &str = "1-200 bytes, first a letter or digit, then also . _ : @ + % -, \
                    and not latest, head or 4-64 hex digits alone";

/// A movable name for a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(String);

impl Label {
    /// Checks the form. Fails with `bad-label` naming the allowed form.
    pub fn new(s: impl Into<String>) -> Result<Self> {
        let s = s.into();
        let ok = (1..=200).contains(&s.len())
            && s.starts_with(|c: char| c.is_ascii_alphanumeric())
            && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+%-".contains(&b))
            && s != "latest"
            && s != "head"
            && !is_id_like(&s);
        if ok {
            Ok(Self(s))
        } else {
            Err(Error::invalid(format!("label {s:?} is not valid: {FORM}")).with_code("bad-label"))
        }
    }

    /// As [`Label::new`], and not with a reserved prefix: what a person may write.
    pub fn for_person(s: impl Into<String>) -> Result<Self> {
        let label = Self::new(s)?;
        if label.is_reserved() {
            return Err(Error::invalid(format!(
                "label {:?} is not valid: the prefix is reserved for the engine",
                label.0
            ))
            .with_code("bad-label"));
        }
        Ok(label)
    }

    /// True if only the engine may write it.
    pub fn is_reserved(&self) -> bool {
        RESERVED.iter().any(|p| self.0.starts_with(p)) || self.0.starts_with(PRE_CLEAN)
    }

    /// True for `pre:`, `post:`, `fail:`, `pause:`, `resume:` and `gate:` labels.
    pub fn is_boundary(&self) -> bool {
        RESERVED[..6].iter().any(|p| self.0.starts_with(p))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// True for text that can only be a snapshot id or a prefix of one: 4 to 64 hex digits.
pub fn is_id_like(s: &str) -> bool {
    (4..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl FromStr for Label {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::new(s)
    }
}
impl Serialize for Label {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}
impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// A boundary in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// `pre`, `post`, `fail`, `pause`, `resume`, `gate` or `inside`.
    pub phase: Phase,
    /// The node, for all but `gate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The iteration of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// The attempt inside the iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// The number of a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<u64>,
}

/// When a boundary was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A node is about to start.
    Pre,
    /// A node completed.
    Post,
    /// A node failed, was interrupted or cancelled.
    Fail,
    /// The run parks.
    Pause,
    /// The run comes back.
    Resume,
    /// A review gate.
    Gate,
    /// Any other snapshot taken while a node executed.
    Inside,
}

impl Phase {
    const LABELLED: [(Self, &'static str); 5] = [
        (Self::Pre, "pre"),
        (Self::Post, "post"),
        (Self::Fail, "fail"),
        (Self::Pause, "pause"),
        (Self::Resume, "resume"),
    ];
}

impl Boundary {
    /// The label of this boundary, `None` for phase `inside`. Bytes of a node id
    /// outside the label alphabet, and `:` and `%`, are percent-encoded.
    pub fn label(&self) -> Option<Label> {
        if self.phase == Phase::Gate {
            return Label::new(format!("gate:{}", self.gate?)).ok();
        }
        let (_, word) = Phase::LABELLED.iter().find(|(p, _)| *p == self.phase)?;
        let node = encode_node(self.node.as_deref()?);
        Label::new(format!("{word}:{node}:{}", self.iteration?)).ok()
    }

    /// Reads a boundary label back; `None` for any other label.
    pub fn parse(label: &Label) -> Option<Self> {
        let mut parts = label.0.split(':');
        let word = parts.next()?;
        let empty =
            Self { phase: Phase::Gate, node: None, iteration: None, attempt: None, gate: None };
        if word == "gate" {
            let gate = parts.next()?.parse().ok()?;
            return parts.next().is_none().then_some(Self { gate: Some(gate), ..empty });
        }
        let (phase, _) = Phase::LABELLED.iter().find(|(_, w)| *w == word)?;
        let node = decode_node(parts.next()?)?;
        let iteration = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self {
            phase: *phase,
            node: Some(node),
            iteration: Some(iteration),
            ..empty
        })
    }
}

fn encode_node(node: &str) -> String {
    let mut out = String::new();
    for b in node.bytes() {
        if b.is_ascii_alphanumeric() || b"._@+-".contains(&b) {
            out.push(b as char);
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn decode_node(s: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = s.as_bytes();
    while let [b, tail @ ..] = rest {
        rest = tail;
        if *b != b'%' {
            out.push(*b);
            continue;
        }
        let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
        out.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_020_bad_labels_are_refused_with_the_form() {
        let long = "x".repeat(201);
        for bad in ["", " ", "../x", "a/b", ".", "latest", "head", "cafe12", "a#1", &long] {
            let e = Label::new(bad).expect_err(bad);
            assert_eq!(e.code(), "bad-label");
            assert!(e.message().contains("1-200 bytes"), "{e}");
        }
        assert!(Label::for_person("post:x:0").is_err());
        assert!(Label::new("post:x:0").is_ok());
        assert!(Label::for_person("before-refactor").is_ok());
    }

    #[test]
    fn cap_022_boundary_labels_parse_back() {
        let b = Boundary {
            phase: Phase::Pre,
            node: Some("a:b/c".into()),
            iteration: Some(3),
            attempt: None,
            gate: None,
        };
        let label = b.label().expect("a label");
        assert_eq!(label.as_str(), "pre:a%3Ab%2Fc:3");
        assert_eq!(Boundary::parse(&label), Some(b));
    }
}
