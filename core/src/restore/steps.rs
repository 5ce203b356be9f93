//! The steps of a plan under the transaction's names.

pub(super) use crate::diff::{State as Side, StateKind as SideKind};
pub(super) use crate::plan::{Op, Step, order};
