//! What a restore would do, as a pure value: made from the target's trees, the
//! observed workspace, the rules then and now and the scope; printed, confirmed and
//! applied unchanged.
//!
//! [`load_target`] reads and validates the trees that differ, [`make`] decides about
//! each path in scope once, [`Plan::preview`] says it in words. A path in scope ends as
//! exactly one of written, unchanged, deleted, kept, not covered; one that is not
//! covered or excluded, then or now, is never touched.

mod clear;
mod decide;
mod draft;
mod guard;
mod input;
mod make;
mod pairs;
mod render;
mod scope;
mod steps;
mod target;
mod types;
mod verdict;
mod walk;

pub use input::{Base, Foreseen, Free, Identity, OnConflict, Options, PlanInput, Scope};
pub use make::make;
pub use steps::{Op, Step, order};
pub use target::{TargetView, load_target};
pub use types::{
    Conflict, ConflictDecision, ConflictKind, FORMAT_VERSION, LeftInPlace, LeftReason, NotCovered,
    Plan, PlanBytes, PlanCounts, PlanKind, PlanRules, PlanScope, PlanTarget, PlanWarning,
    PlanWorkspace, ScopeMode,
};
pub use verdict::MassDelete;
