//! One call from two worlds to a plan.

use std::collections::{BTreeMap, BTreeSet};

use backtrail_core::diff::{Cover, Memory};
use backtrail_core::error::Result;
use backtrail_core::ids::{Digest, SnapshotId, WorkspaceKey};
use backtrail_core::path::RelPath;
use backtrail_core::plan::{
    Base, Foreseen, Free, Identity, LeftReason, Options, Plan, PlanInput, PlanKind, PlanTarget,
    PlanWorkspace, Scope, load_target, make,
};
use backtrail_core::snapshot::tree::Ref;

use crate::world::{World, cover, observed, path, tree_of};

pub(crate) struct Setup {
    pub(crate) kind: PlanKind,
    pub(crate) scope: Scope,
    pub(crate) options: Options,
    pub(crate) base: Option<World>,
    pub(crate) foreseen: BTreeMap<RelPath, Foreseen>,
    pub(crate) left: BTreeMap<RelPath, LeftReason>,
    pub(crate) protected: BTreeSet<RelPath>,
    pub(crate) identity: Identity,
    pub(crate) case_folding: bool,
    pub(crate) then: &'static str,
    pub(crate) now: &'static str,
    pub(crate) free: Free,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kind: PlanKind::Restore,
            scope: Scope::Full,
            options: Options::default(),
            base: None,
            foreseen: BTreeMap::new(),
            left: BTreeMap::new(),
            protected: BTreeSet::new(),
            identity: Identity::Same,
            case_folding: false,
            then: "",
            now: "",
            free: Free::default(),
        }
    }
}

pub(crate) fn set(paths: &[&str]) -> BTreeSet<RelPath> {
    paths.iter().map(|p| path(p)).collect()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work)
}

pub(crate) fn try_plan(target: &World, now: &World, setup: &Setup) -> Result<Plan> {
    let mut trees = Memory::default();
    let root = tree_of(target, &mut trees);
    plan_of(trees, root, &cover(target, setup.then), now, setup)
}

/// A plan whose target is a tree made by hand.
pub(crate) fn plan_of(
    mut trees: Memory,
    root: Ref,
    cover: &Cover,
    now: &World,
    setup: &Setup,
) -> Result<Plan> {
    let observed = observed(now, setup.now);
    let view = block_on(load_target(&trees, &root, Some(&observed), &setup.scope))?;
    let base = setup.base.as_ref().map(|w| tree_of(w, &mut trees));
    let base = base.map(|b| block_on(load_target(&trees, &b, Some(&observed), &setup.scope)));
    let base = base.transpose()?;
    let root_tree = root.digest;
    let matcher = observed.rules.matcher();
    make(&PlanInput {
        kind: setup.kind,
        workspace: PlanWorkspace {
            key: WorkspaceKey::new("0123456789abcdef")?,
            root: "/w".into(),
            device: 1,
            inode: 2,
        },
        target: PlanTarget {
            snapshot: SnapshotId::of(&Digest::EMPTY),
            label: None,
            run: None,
            root_tree,
        },
        view: &view,
        cover,
        observed: Some(&observed),
        now: &matcher,
        base: base.as_ref().map_or(Base::None, Base::Tree),
        base_id: None,
        scope: &setup.scope,
        foreseen: &setup.foreseen,
        left: &setup.left,
        protected: &setup.protected,
        options: &setup.options,
        identity: setup.identity,
        case_folding: setup.case_folding,
        free: setup.free,
    })
}

pub(crate) fn plan(target: &World, now: &World, setup: &Setup) -> Plan {
    try_plan(target, now, setup).expect("a plan")
}

/// `op path` of each step, in order.
pub(crate) fn steps(plan: &Plan) -> Vec<String> {
    let op = |s: &backtrail_core::plan::Step| {
        let op = serde_json::to_value(s.op).expect("json");
        format!("{} {}", op.as_str().expect("text"), s.path)
    };
    plan.steps.iter().map(op).collect()
}

/// `kind path` of each conflict.
pub(crate) fn conflicts(plan: &Plan) -> Vec<String> {
    plan.conflicts.iter().map(|c| format!("{} {}", c.kind.as_str(), c.path)).collect()
}
