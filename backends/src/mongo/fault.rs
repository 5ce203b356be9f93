//! What an error of the driver means for the caller. Nothing of a URL that may be secret
//! gets into a message.

use backtrail_core::error::{Error, Kind};
use backtrail_core::redact::Redactor;
use mongodb::error::{Error as DriverError, ErrorKind, WriteFailure};

/// Somebody else's document has this `_id`.
pub(super) const DUPLICATE: i32 = 11000;
/// No change streams here: a standalone server.
pub(super) const NO_CHANGE_STREAM: i32 = 40573;

/// Codes of what passes: no primary, a step-down, a shutdown, a time limit, a cursor that
/// went away with its server.
const PASSING: &[i32] = &[
    6, 7, 24, 43, 46, 50, 64, 79, 89, 91, 112, 133, 134, 136, 175, 189, 202, 246, 262, 358, 9001,
    10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436,
];
/// Codes of a refusal by rights.
const DENIED: &[i32] = &[11, 13, 18, 31, 8000];

/// The code of a server's answer, when it is one.
pub(super) fn code_of(e: &DriverError) -> Option<i32> {
    match &*e.kind {
        ErrorKind::Command(e) => Some(e.code),
        ErrorKind::Write(WriteFailure::WriteError(e)) => Some(e.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(e)) => Some(e.code),
        _ => None,
    }
}

/// The kind for a server's code.
pub(super) fn kind_of(code: i32) -> Kind {
    match code {
        DUPLICATE => Kind::Conflict,
        c if PASSING.contains(&c) => Kind::Unavailable { maybe_applied: true },
        c if DENIED.contains(&c) => Kind::Denied,
        _ => Kind::Failed,
    }
}

/// An error of the driver as one of ours. `what` names operation and key.
pub(super) fn error(what: &str, e: &DriverError, secrets: &Redactor) -> Error {
    let kind = match &*e.kind {
        ErrorKind::Authentication { .. } => Kind::Denied,
        ErrorKind::InvalidArgument { .. } | ErrorKind::InvalidTlsConfig { .. } => Kind::Invalid,
        ErrorKind::BsonSerialization(_) | ErrorKind::BsonDeserialization(_) => Kind::Corrupt,
        ErrorKind::IncompatibleServer { .. } => Kind::Refused,
        _ => match code_of(e) {
            Some(code) => kind_of(code),
            None => Kind::Unavailable { maybe_applied: true },
        },
    };
    let text = e.to_string();
    made(kind, format!("{what}: {}", secrets.text(first_line(&text))))
}

/// An error with the code and hint of its kind.
pub(super) fn made(kind: Kind, message: String) -> Error {
    match kind {
        Kind::Denied => Error::new(kind, "denied", message)
            .with_hint("check user, password and authSource of the MongoDB URL"),
        Kind::Invalid => Error::invalid(message),
        Kind::Corrupt => Error::corrupt(message),
        Kind::Conflict => Error::new(kind, "conflict", message),
        Kind::Refused => Error::refused("unsupported-server", message),
        Kind::Failed => Error::failed("mongodb", message),
        kind => Error::unavailable(message).with_kind(kind),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
