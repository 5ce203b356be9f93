//! `restore --into`: a new directory, or another one that is overwritten in place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use backtrail_core::error::Result;
use backtrail_core::fsx::{self, Dir};
use backtrail_core::path::RelPath;
use backtrail_core::plan::{PlanKind, Scope};
use backtrail_core::restore::{self, IntoDone, IntoRequest};
use backtrail_core::snapshot::chain::resolve;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::tree::Body;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::Root;
use serde_json::json;

use super::{Args, Confirm, not_with, report};
use crate::context::{App, Place, quoted};
use crate::exit::{self, Code};
use crate::output::{Paint, format, shell};
use crate::verbs::SHORT;

/// Restores into `dir`.
pub(super) async fn run(app: &App, args: &Args, text: &str, dir: &Path) -> Result<Code> {
    if args.operation_id.is_some() {
        return Err(not_with("--operation-id", "--into"));
    }
    let place = app.history().await?;
    let target = resolve(&*place.store, &place.chain, text).await?;
    let dest = crate::env::absolute(dir)?;
    let paths = args.paths.iter().chain(&args.more_paths);
    let paths: BTreeSet<RelPath> =
        paths.map(|p| crate::paths::in_snapshot(place.root.as_ref(), p)).collect::<Result<_>>()?;
    let at = dest.clone();
    let occupied = blocking(move || {
        Ok(Dir::open(&at).and_then(|d| d.names()).is_ok_and(|names| !names.is_empty()))
    });
    if args.overwrite && occupied.await? {
        let there = shell(&dest.to_string_lossy());
        // An interrupted restore of that directory is ended there.
        return over(app, args, place, target, dest, paths).await.map_err(|e| match e.hint() {
            Some(hint) => {
                let hint = hint
                    .replace("backtrail restore --", &format!("backtrail restore -w {there} --"));
                e.with_hint(hint)
            }
            None => e,
        });
    }
    if args.agreement.plan.is_some() {
        return Err(not_with("--plan", "--into an empty directory"));
    }
    if args.agreement.dry_run {
        return dry_run(app, &place, &target, &dest, &paths).await;
    }
    let started = app.now();
    let request = IntoRequest {
        tree: target.root.clone(),
        dest: dest.clone(),
        paths,
        sync: args.sync,
        special_modes: args.conflicts.special_modes,
        no_space_check: args.no_space_check,
        any_root: args.any_root,
        threads: place.settings.threads,
    };
    let done = restore::restore_into(&*place.store, &app.ctx, request).await?;
    let ms = u64::try_from((app.now().0 - started.0) / 1_000_000).unwrap_or(0);
    print(app, &target, &dest, "closed", &done, ms);
    Ok(exit::COMPLETE)
}

/// What would be written.
async fn dry_run(
    app: &App,
    place: &Place,
    target: &Snapshot,
    dest: &Path,
    paths: &BTreeSet<RelPath>,
) -> Result<Code> {
    let mut done = IntoDone::default();
    let all = BTreeSet::from([RelPath::root()]);
    for under in if paths.is_empty() { &all } else { paths } {
        let listing = crate::tree::list(&*place.store, target, under).await?;
        if let Some((path, e)) = listing.damaged.into_iter().next() {
            return Err(e.context(path));
        }
        for row in listing.rows {
            match &row.entry.body {
                Body::Dir(_) => done.dirs += 1,
                Body::File(r) => {
                    done.bytes += r.length;
                    done.written.push(row.path);
                }
                Body::Symlink(_) => done.written.push(row.path),
            }
        }
    }
    print(app, target, dest, "planned", &done, 0);
    Ok(exit::COMPLETE)
}

fn print(app: &App, target: &Snapshot, dest: &Path, state: &str, done: &IntoDone, ms: u64) {
    if app.out.is_json() {
        let stat = fsx::stat_path(dest).ok();
        app.out.json(&json!({
            "format_version": 1,
            "kind": PlanKind::Into,
            "transaction": null,
            "state": state,
            "workspace": {
                "root": backtrail_core::path::text(dest.as_os_str().as_encoded_bytes()),
                "device": stat.map(|s| s.device),
                "inode": stat.map(|s| s.inode),
            },
            "target": { "snapshot": target.id, "label": target.label, "root_tree": target.root.digest },
            "bank": null,
            "counts": { "written": done.written.len(), "dirs_created": done.dirs, "deleted": 0 },
            "bytes": { "written": done.bytes, "banked": 0 },
            "written_paths": done.written.iter().take(100).collect::<Vec<_>>(),
            "special_dropped": done.special_dropped,
            "elapsed_ms": ms,
            "exit_code": 0,
        }));
        return;
    }
    if done.special_dropped > 0 {
        app.out.warn(&format!(
            "setuid and setgid were left out of {}; --special-modes keeps them",
            format::count(done.special_dropped, "file")
        ));
    }
    let verb = if state == "planned" { "would restore" } else { "restored" };
    app.out.summary(format!(
        "{verb} {} into {}  {} written  +{}  {}",
        app.out.paint(Paint::Id, &target.id.as_str()[..SHORT]),
        quoted(dest),
        done.written.len(),
        format::bytes(done.bytes),
        format::elapsed(ms),
    ));
}

/// Into a directory that holds something: in place, banked, and nothing is deleted.
async fn over(
    app: &App,
    args: &Args,
    from: Place,
    target: Snapshot,
    dest: PathBuf,
    paths: BTreeSet<RelPath>,
) -> Result<Code> {
    let (host, any_root, at) = (app.ctx.host.clone(), args.any_root, dest);
    let root = blocking(move || Root::open(&at, &host, any_root)).await?;
    let place = Place { chain: root.chain(), root: Some(root), ..from };
    app.before_change(&place, args.agreement.dry_run).await?;
    let mut request = super::request(app, args, &place, target, args.text())?;
    request.kind = PlanKind::Into;
    request.foreign = true;
    request.options.no_delete = true;
    if !paths.is_empty() {
        request.scope = Scope::Paths(paths);
    }
    let chain = place.chain.clone();
    let recorder = super::recorder(app, &place, chain, args.agreement.dry_run).await?;
    let confirm = Confirm::new(app, &request.target, &args.agreement, true);
    let result = restore::run(&recorder, &request, &confirm).await?;
    Ok(report::result(app, &result, confirm.preview()))
}
