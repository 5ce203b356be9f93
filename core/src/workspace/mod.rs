//! What is on disk, and which of it counts.

pub mod rules;
