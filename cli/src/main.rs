//! The `backtrail` binary.
fn main() {}
