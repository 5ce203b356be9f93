//! Helpers of the tests: a sandbox to run the binary in.

pub mod cli;
pub mod history;
pub mod host;
pub mod proxy;
pub mod random;
pub mod suite;
pub mod wire;
