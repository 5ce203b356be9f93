//! backtrail-backends: the stores. [`open::open`] turns a URL into a store; local
//! files are the reference layout of every other backend.

mod composite;
pub mod host;
pub mod local;
pub mod marker;
pub mod mongo;
pub mod net;
pub mod open;
pub mod redact;
pub mod s3;
