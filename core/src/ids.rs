//! Newtypes for every name that becomes part of a key: a value that exists is valid.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Lower-case hex of `bytes`.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        out.push(HEX[usize::from(b >> 4)] as char);
        out.push(HEX[usize::from(b & 15)] as char);
    }
    out
}

/// True if `s` is exactly `n` lower-case hex digits.
pub fn is_hex(s: &str, n: usize) -> bool {
    s.len() == n && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The SHA-256 of some bytes. Text form: 64 lower-case hex digits, nothing else.
///
/// ```
/// use backtrail_core::ids::Digest;
/// let d = Digest::of(b"hello\n");
/// assert_eq!(d.to_string().parse::<Digest>().unwrap(), d);
/// assert!("ab".parse::<Digest>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of the empty content, which is never stored.
    pub const EMPTY: Self = Self([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ]);

    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex()[..12])
    }
}

impl FromStr for Digest {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        if !is_hex(s, 64) {
            return Err(Error::not_found(format!("no such object: {s:?}")));
        }
        let nibble = |b: u8| if b <= b'9' { b - b'0' } else { b - b'a' + 10 };
        let mut out = [0; 32];
        for (i, pair) in s.as_bytes().chunks_exact(2).enumerate() {
            out[i] = nibble(pair[0]) << 4 | nibble(pair[1]);
        }
        Ok(Self(out))
    }
}

macro_rules! text_serde {
    ($t:ty) => {
        impl serde::Serialize for $t {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $t {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let s = String::deserialize(d)?;
                s.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_serde!(Digest);

/// Declares a checked text id: its check runs on every way in.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $form:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks `s`; fails with kind `Invalid`, naming the allowed form.
            pub fn new(s: impl Into<String>) -> Result<Self> {
                let s = s.into();
                let check: fn(&str) -> bool = $check;
                if check(&s) {
                    Ok(Self(s))
                } else {
                    Err(Error::invalid(format!(concat!($what, " {:?} is not valid: ", $form), s)))
                }
            }
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(s: &str) -> Result<Self> {
                Self::new(s)
            }
        }
        text_serde!($name);
    };
}

text_id!(
    /// The first 16 hex digits of a snapshot document's digest.
    SnapshotId, "snapshot id", "16 lower-case hex digits", |s| is_hex(s, 16)
);
text_id!(
    /// A workspace's key: 16 hex digits, see [`WorkspaceKey::of`].
    WorkspaceKey, "workspace key", "16 lower-case hex digits", |s| is_hex(s, 16)
);
text_id!(
    /// A restore transaction: `tx-` and 16 hex digits.
    TransactionId, "transaction id", "tx- and 16 lower-case hex digits",
    |s| s.strip_prefix("tx-").is_some_and(|h| is_hex(h, 16))
);
text_id!(
    /// A run id as read: 1 to 255 bytes, no separator or control character, no leading dot.
    RunId, "run id", "1-255 bytes without / \\ or control characters, not starting with .",
    plain_id
);
text_id!(
    /// A node id of a run.
    NodeId, "node id", "1-255 bytes without / \\ : or control characters, not starting with .",
    |s| plain_id(s) && !s.contains(':')
);
text_id!(
    /// An interaction id of a run.
    InteractionId, "interaction id",
    "1-255 bytes without / \\ or control characters, not starting with .", plain_id
);
text_id!(
    /// The subject of workspace checkpoints.
    SubjectId, "checkpoint subject",
    "1-255 bytes without / \\ or control characters, not starting with .", plain_id
);
text_id!(
    /// The id of a workspace checkpoint or of its rewind.
    CheckpointId, "checkpoint id",
    "1-255 bytes without / \\ or control characters, not starting with .", plain_id
);
text_id!(
    /// A runner pool.
    PoolName, "pool", "1-255 bytes without / \\ or control characters, not starting with .",
    plain_id
);

fn plain_id(s: &str) -> bool {
    (1..=255).contains(&s.len())
        && !s.starts_with('.')
        && !s.contains(['/', '\\'])
        && !s.bytes().any(|b| b < 0x20 || b == 0x7f)
}

impl WorkspaceKey {
    /// The key of a canonical root on a machine:
    /// first 16 hex of SHA-256(root bytes, NUL, machine).
    pub fn of(root: &[u8], machine: &str) -> Self {
        let mut bytes = root.to_vec();
        bytes.push(0);
        bytes.extend_from_slice(machine.as_bytes());
        Self(Digest::of(&bytes).hex()[..16].to_owned())
    }
}

impl SnapshotId {
    /// The id of a document with this digest.
    pub fn of(digest: &Digest) -> Self {
        Self(digest.hex()[..16].to_owned())
    }
}

/// A chain of snapshots: `run/<run>`, `ws/<workspace key>` or `cp/<subject>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// A run's chain.
    Run(RunId),
    /// A workspace's own chain.
    Workspace(WorkspaceKey),
    /// The chain of a checkpoint subject.
    Checkpoint(SubjectId),
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(r) => write!(f, "run/{r}"),
            Self::Workspace(k) => write!(f, "ws/{k}"),
            Self::Checkpoint(s) => write!(f, "cp/{s}"),
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Chain {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s.split_once('/') {
            Some(("run", r)) => Ok(Self::Run(r.parse()?)),
            Some(("ws", k)) => Ok(Self::Workspace(k.parse()?)),
            Some(("cp", c)) => Ok(Self::Checkpoint(c.parse()?)),
            _ => Err(Error::invalid(format!(
                "chain {s:?} is not valid: run/<run>, ws/<workspace key> or cp/<subject>"
            ))),
        }
    }
}
text_serde!(Chain);
