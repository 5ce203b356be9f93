//! The file system.
