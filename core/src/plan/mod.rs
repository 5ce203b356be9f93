//! What a restore would do, as a pure value.

mod steps;

pub use steps::{Op, Step, order};
