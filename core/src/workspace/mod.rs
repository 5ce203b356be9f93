//! What is on disk, and which of it counts.

pub mod cache;
pub mod root;
pub mod rules;

pub use root::Root;
