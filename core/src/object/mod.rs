//! Content as objects.

pub mod content;
