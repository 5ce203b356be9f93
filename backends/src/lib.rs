//! backtrail-backends: the stores. [`open::open`] turns a URL into a store; local
//! files are the reference layout of every other backend.

pub mod host;
pub mod local;
pub mod net;
pub mod open;
pub mod s3;
