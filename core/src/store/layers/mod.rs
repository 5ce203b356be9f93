//! Layers: pure wrappers over a store that keep its contract. A store is opened as
//! `observe(retry(verify(backend)))`; in tests [`fault`] goes under `verify`.

pub mod fault;
pub mod observe;
pub mod retry;
pub mod verify;

use std::fmt;

/// The methods of a store, as layers count and name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `health`.
    Health,
    /// `put_objects`.
    PutObjects,
    /// `get_object` and `get_objects`.
    GetObjects,
    /// `contains`.
    Contains,
    /// `list_objects`.
    ListObjects,
    /// `delete_objects`.
    DeleteObjects,
    /// `flush`.
    Flush,
    /// `maintain`.
    Maintain,
    /// `get`.
    Get,
    /// `put`.
    Put,
    /// `delete`.
    Delete,
    /// `list`.
    List,
    /// `append_events`.
    AppendEvents,
    /// `read_events`.
    ReadEvents,
    /// `follow_events`.
    FollowEvents,
    /// `append_log`.
    AppendLog,
    /// `read_log`.
    ReadLog,
    /// `follow_log`.
    FollowLog,
    /// `lock`.
    Lock,
    /// `lock_holder`.
    LockHolder,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Health,
        Self::PutObjects,
        Self::GetObjects,
        Self::Contains,
        Self::ListObjects,
        Self::DeleteObjects,
        Self::Flush,
        Self::Maintain,
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::List,
        Self::AppendEvents,
        Self::ReadEvents,
        Self::FollowEvents,
        Self::AppendLog,
        Self::ReadLog,
        Self::FollowLog,
        Self::Lock,
        Self::LockHolder,
    ];

    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::PutObjects => "put_objects",
            Self::GetObjects => "get_objects",
            Self::Contains => "contains",
            Self::ListObjects => "list_objects",
            Self::DeleteObjects => "delete_objects",
            Self::Flush => "flush",
            Self::Maintain => "maintain",
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::AppendEvents => "append_events",
            Self::ReadEvents => "read_events",
            Self::FollowEvents => "follow_events",
            Self::AppendLog => "append_log",
            Self::ReadLog => "read_log",
            Self::FollowLog => "follow_log",
            Self::Lock => "lock",
            Self::LockHolder => "lock_holder",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
