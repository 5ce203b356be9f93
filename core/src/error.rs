//! One error type for the engine: a kind that says what the caller must do, a
//! stable code, a message of this layer only, and a hint kept apart from it.

use std::error::Error as StdError;
use std::fmt;

/// What the caller can do about an error. The table of exit codes in
/// `docs/exit-codes.md` is a function of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The thing does not exist; look elsewhere (exit 6).
    NotFound,
    /// Somebody else's write is there; read again and decide (exit 4).
    Conflict,
    /// Refused on purpose, nothing was changed (exit 4).
    Refused,
    /// A lock is held; wait (exit 5).
    Busy,
    /// A right was lost; stop now (exit 4).
    LostLease,
    /// The request is malformed; fix it (exit 2).
    Invalid,
    /// Written by a newer build; upgrade (exit 4).
    Newer,
    /// Stored data is missing or wrong; repair (exit 7).
    Corrupt,
    /// Access was denied by the store; fix the credentials or modes (exit 8).
    Denied,
    /// The store cannot be reached or failed; try later (exit 8).
    Unavailable {
        /// The write may have happened all the same.
        maybe_applied: bool,
    },
    /// The operation failed for a reason of the host: no space, unreadable root (exit 1).
    Failed,
    /// Stopped by a signal, a time limit or a cancelled token (exit 1, or 128+n).
    Interrupted,
}

/// The result of every fallible function of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its [`Kind`], a stable code (API), a message (not API), an
/// optional hint, the paths it concerns and its cause.
///
/// `Display` prints this layer only; the cause is reached through `source()`.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    code: &'static str,
    message: String,
    hint: Option<String>,
    paths: Vec<String>,
    details: serde_json::Map<String, serde_json::Value>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error of `kind` with a stable `code` such as `"not-found"`.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            code,
            message: message.into(),
            hint: None,
            paths: Vec::new(),
            details: serde_json::Map::new(),
            source: None,
        }))
    }

    /// A malformed value or request (`bad-value`).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, "bad-value", message)
    }
    /// Something that is not there (`not-found`).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, "not-found", message)
    }
    /// Stored data that is missing or wrong (`corrupt`).
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, "corrupt", message)
    }
    /// A request refused before anything was changed.
    pub fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, code, message)
    }
    /// A failure of the host.
    pub fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, code, message)
    }
    /// A store that could not be reached or failed (`unavailable`).
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable { maybe_applied: false }, "unavailable", message)
    }

    /// Classifies an I/O error of the store: absent, denied, full or unavailable.
    pub fn store_io(what: impl Into<String>, e: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let (kind, code) = match e.kind() {
            K::NotFound => (Kind::NotFound, "not-found"),
            K::PermissionDenied | K::ReadOnlyFilesystem => (Kind::Denied, "denied"),
            K::StorageFull | K::QuotaExceeded => (Kind::Failed, "store-full"),
            _ => (Kind::Unavailable { maybe_applied: false }, "unavailable"),
        };
        Self::new(kind, code, what).with_source(e)
    }

    /// Adds one next step that works when pasted.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }
    /// Names the paths concerned, in path text.
    #[must_use]
    pub fn with_paths(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.0.paths.extend(paths);
        self
    }
    /// Adds a machine-readable detail, shown in JSON beside the message.
    #[must_use]
    pub fn with_detail(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }
    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, e: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(e.into());
        self
    }
    /// Replaces the stable code, for a layer that knows better what happened.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.0.code = code;
        self
    }
    /// Replaces the kind, for a layer that knows better what the caller must do.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }
    /// Puts `what` before the message: "`what`: message".
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// What the caller can do.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.0.code
    }
    /// The message of this layer.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The next step, when there is one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// The paths concerned, in path text.
    pub fn paths(&self) -> &[String] {
        &self.0.paths
    }
    /// Machine-readable details.
    pub fn details(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.0.details
    }
    /// True for [`Kind::NotFound`].
    pub fn is_not_found(&self) -> bool {
        self.0.kind == Kind::NotFound
    }
    /// True for [`Kind::Conflict`].
    pub fn is_conflict(&self) -> bool {
        self.0.kind == Kind::Conflict
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}): {}", self.0.kind, self.0.code, self.0.message)?;
        let mut cause = StdError::source(self);
        while let Some(e) = cause {
            write!(f, ": {e}")?;
            cause = e.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// Adds what was being done to the `io::Error` of a workspace or host operation.
pub trait IoContext<T> {
    /// Turns the error into one of [`Kind::Failed`] (or `NotFound`) that says `what`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| {
            let kind = match e.kind() {
                std::io::ErrorKind::NotFound => Kind::NotFound,
                _ => Kind::Failed,
            };
            let code = if kind == Kind::NotFound { "not-found" } else { "io" };
            Error::new(kind, code, format!("{}: {e}", what()))
        })
    }
}
