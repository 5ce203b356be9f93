//! From a request to a plan: observe, read both rule sets and the target, plan. Writes
//! nothing anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::request::{RequestBase, RestoreRequest};
use crate::capture::Recorder;
use crate::diff::{Cover, Stored};
use crate::error::{Error, Kind, Result};
use crate::fsx::probe;
use crate::ids::Chain;
use crate::observe::{self, Observation, Observed};
use crate::path::RelPath;
use crate::plan::{
    self, Base, Free, Identity, Plan, PlanInput, PlanTarget, PlanWorkspace, TargetView, load_target,
};
use crate::snapshot::chain;
use crate::snapshot::doc::{Snapshot, Workspace};
use crate::store::Store;
use crate::tasks::blocking;
use crate::workspace::cache::StatCache;

/// A plan and what it was made from.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    /// The look at the workspace that the plan was made from.
    pub(super) seen: Observation,
    pub(super) identity: Identity,
}

/// Plans `request` from what is on disk now.
pub(super) async fn prepare(recorder: &Recorder, request: &RestoreRequest) -> Result<Prepared> {
    let store = &**recorder.store();
    let refs = chain::load_refs(store, recorder.chain()).await?.refs;
    let head = match &refs.head {
        Some(id) => match chain::read_snapshot(store, recorder.chain(), id).await {
            Ok(head) => Some(head),
            // Without a base to judge by, it is needed for evidence only.
            Err(e) if is_damage(&e) && !matches!(request.base, RequestBase::Head) => None,
            Err(e) => return Err(e),
        },
        None => None,
    };
    let identity = identity(recorder, request).await?;
    let cover = Cover::of(store, &request.target).await?;
    let mut unread = BTreeSet::new();
    // A second look reads files above the size limit that would be overwritten.
    for _ in 0..2 {
        let seen = look(recorder, request, &unread).await?;
        let input = Inputs { recorder, request, head: head.as_ref(), cover: &cover, identity };
        let plan = input.plan(&seen.observed).await?;
        if plan.unread.is_empty() || !unread.is_empty() {
            return Ok(Prepared { plan, seen, identity });
        }
        unread = plan.unread;
    }
    Err(Error::failed("internal", "planning did not come to an end"))
}

fn is_damage(e: &Error) -> bool {
    matches!(e.kind(), Kind::Corrupt | Kind::NotFound)
}

/// Whether this directory is the one the target was taken of.
async fn identity(recorder: &Recorder, request: &RestoreRequest) -> Result<Identity> {
    let own = recorder.root().identity(&recorder.context().host);
    let was = &request.target.workspace;
    let here = was.same_place(&own);
    if request.rebuilt || was.same_directory(&own) {
        return Ok(Identity::Same);
    }
    if here {
        return Ok(Identity::Recreated);
    }
    if adopted(&**recorder.store(), &request.target.chain, &own).await? {
        return Ok(Identity::Same);
    }
    if request.foreign {
        return Ok(Identity::Foreign);
    }
    let message = format!(
        "snapshot {} was taken of {} on {}, not of {}",
        request.target.id, was.root, was.host, own.root
    );
    Err(Error::refused("foreign-workspace", message).with_hint(format!(
        "restore it --into another directory, adopt its chain with `backtrail capture \
             --chain {} --adopt`, or pass --foreign (nothing is deleted then)",
        request.target.chain
    )))
}

/// True if the chain goes on in this directory.
async fn adopted(store: &dyn Store, chain: &Chain, own: &Workspace) -> Result<bool> {
    let Some(head) = chain::load_refs(store, chain).await?.refs.head else { return Ok(false) };
    match chain::read_snapshot(store, chain, &head).await {
        Ok(head) => Ok(head.workspace.same_directory(own)),
        Err(e) if is_damage(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// One walk; nothing is stored and no cache is written.
async fn look(
    recorder: &Recorder,
    request: &RestoreRequest,
    unread: &BTreeSet<RelPath>,
) -> Result<Observation> {
    let (dir, root) = (recorder.settings().cache_dir.clone(), recorder.root().clone());
    let cache = blocking(move || Ok(StatCache::load(dir.as_deref(), &root))).await?;
    let mut settings = recorder.settings().observe.clone();
    settings.rehash |= request.rehash;
    settings.must_store = unread.clone();
    // How many files there are is a question for captures; the bank takes them all.
    settings.any_count = true;
    let (ctx, root) = (recorder.context(), recorder.root());
    observe::observe(ctx, root, &settings, cache, None).await
}

struct Inputs<'a> {
    recorder: &'a Recorder,
    request: &'a RestoreRequest,
    head: Option<&'a Snapshot>,
    cover: &'a Cover,
    identity: Identity,
}

impl Inputs<'_> {
    async fn plan(&self, observed: &Observed) -> Result<Plan> {
        let (request, recorder) = (self.request, self.recorder);
        let source = Stored(&**recorder.store());
        let tree = &request.target.root;
        let view = load_target(&source, tree, Some(observed), &request.scope).await?;
        let base_view: Option<TargetView> = match (&request.base, self.head) {
            (RequestBase::Head, Some(head)) => {
                Some(load_target(&source, &head.root, Some(observed), &request.scope).await?)
            }
            _ => None,
        };
        let base = match (&request.base, &base_view) {
            (RequestBase::States(states), _) => Base::States(states),
            (_, Some(view)) => Base::Tree(view),
            _ => Base::None,
        };
        let root = recorder.root();
        let now = observed.rules.matcher();
        let mut plan = plan::make(&PlanInput {
            kind: request.kind,
            workspace: PlanWorkspace {
                key: root.key.clone(),
                root: root.text(),
                device: root.stat.device,
                inode: root.stat.inode,
            },
            target: PlanTarget {
                snapshot: request.target.id.clone(),
                label: request.label.clone(),
                run: request.run.clone(),
                root_tree: tree.digest,
            },
            view: &view,
            cover: self.cover,
            observed: Some(observed),
            now: &now,
            base,
            base_id: self.head.map(|h| h.id.clone()),
            scope: &request.scope,
            foreseen: &request.foreseen,
            left: &request.left,
            protected: &request.protected,
            options: &request.options,
            identity: self.identity,
            case_folding: self.folds_case(observed).await?,
            free: self.free().await?,
        })?;
        let of_rules = |code: &str| matches!(code, "rule-line" | "rule-file-ignored");
        for warning in observed.warnings.iter().filter(|w| of_rules(w.code)) {
            let (code, message) = (warning.code.to_owned(), warning.hint.clone());
            plan.warnings.push(plan::PlanWarning { code, message });
        }
        Ok(plan)
    }

    /// Asked of the first name in the root that holds a letter.
    async fn folds_case(&self, observed: &Observed) -> Result<bool> {
        let letter = |n: &[u8]| n.iter().any(u8::is_ascii_alphabetic);
        let name = observed.dirs.first().and_then(|d| d.entries.iter().find(|e| letter(&e.name)));
        let Some(name) = name.map(|e| e.name.clone()) else { return Ok(false) };
        let dir = Arc::clone(&self.recorder.root().dir);
        // A name that went meanwhile says nothing; the case-sensitive answer is the
        // common one, and a clash is refused by the system then.
        blocking(move || Ok(probe::folds_case(&dir, &name).unwrap_or(false))).await
    }

    async fn free(&self) -> Result<Free> {
        let dir = Arc::clone(&self.recorder.root().dir);
        let workspace = blocking(move || Ok(dir.free_bytes().ok().map(|f| f.0))).await?;
        let store = self.recorder.store().health().await.ok().and_then(|h| h.free_bytes);
        Ok(Free { workspace, store })
    }
}
