//! `diff`: what changed between two states.

use std::path::PathBuf;

use async_trait::async_trait;
use backtrail_core::diff::{
    Change, ChangeCounts, ContentSource, Cover, LineKind, ObservedTrees, Status, Stored, View,
    add_text, between, patch,
};
use backtrail_core::error::{IoContext as _, Result};
use backtrail_core::fsx::{self, ReadFailure};
use backtrail_core::ids::Digest;
use backtrail_core::object::content;
use backtrail_core::observe::{self, Observed};
use backtrail_core::path::RelPath;
use backtrail_core::snapshot::chain::resolve;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::tree::Ref;
use backtrail_core::store::Store;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::Root;
use backtrail_core::workspace::cache::StatCache;
use backtrail_core::workspace::rules::RuleSet;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::args::push;
use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::output::Paint;
use crate::settings::Override;

/// Arguments of `diff`.
#[derive(clap::Args)]
#[command(
    after_help = "Each line begins with A added, D deleted, M content, m only the mode, T another kind of
thing, U not covered. Ends with 0, with or without differences.

Examples:
  backtrail diff                        the newest snapshot against the workspace now
  backtrail diff --patch --path src
  backtrail diff before-refactor latest --stat
  backtrail diff latest~1 latest --json"
)]
pub(crate) struct Args {
    /// The old state
    #[arg(value_name = "A", default_value = "latest")]
    from: String,
    /// The new state; the workspace as it is now when not given
    #[arg(value_name = "B")]
    to: Option<String>,
    /// Only these paths and what lies below them
    #[arg(long = "path", value_name = "PATH", num_args = 1)]
    paths: Vec<PathBuf>,
    /// Count changed lines
    #[arg(long, group = "form")]
    stat: bool,
    /// Only the paths
    #[arg(long, group = "form")]
    name_only: bool,
    /// The changed lines, as a unified patch
    #[arg(short, long, group = "form")]
    patch: bool,
    /// Look at a root that is refused otherwise: /, the home directory
    #[arg(long)]
    any_root: bool,
    /// Count larger files as not covered [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    max_file: Option<String>,
    /// Refuse more files [default: 50000]
    #[arg(long, value_name = "N")]
    max_files: Option<String>,
}

impl Args {
    /// Flags that are settings.
    pub(crate) fn overrides(&self, out: &mut Vec<Override>) {
        push(out, "capture.max_file", "--max-file", &self.max_file);
        push(out, "capture.max_files", "--max-files", &self.max_files);
    }
}

/// Compares.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let place = match &args.to {
        Some(_) => app.history().await?,
        None => {
            let place = app.place(args.any_root).await?;
            app.warn_unfinished(&place).await?;
            place
        }
    };
    let store = &*place.store;
    let paths = args.paths.iter().map(|p| crate::paths::in_snapshot(place.root.as_ref(), p));
    let only: Vec<RelPath> = paths.collect::<Result<_>>()?;
    let from = resolve(store, &place.chain, &args.from).await?;
    let old = stored(store, &from).await?;
    // Lists of paths need no text; JSON has it unless only names are asked for.
    let text = args.stat || args.patch || (app.out.is_json() && !args.name_only);
    let (changes, to) = match &args.to {
        Some(to) => {
            let to = resolve(store, &place.chain, to).await?;
            let mut changes = between(&old, &stored(store, &to).await?, &only).await?;
            if text {
                add_text(&mut changes, &Stored(store), &Stored(store)).await?;
            }
            (changes, json!({ "snapshot": to.id, "label": to.label }))
        }
        None => {
            let observed = look(app, &place).await?;
            let mut changes = between(&old, &present(&observed), &only).await?;
            if text {
                let now = Workspace(place.root()?.clone());
                add_text(&mut changes, &Stored(store), &now).await?;
            }
            (changes, json!({ "workspace": place.root()?.text() }))
        }
    };
    if app.out.is_json() {
        app.out.json(&document(&place, &from, to, &changes));
    } else {
        print(app, args, &changes);
    }
    Ok(exit::COMPLETE)
}

async fn stored<'a>(store: &'a dyn Store, s: &Snapshot) -> Result<View<'a>> {
    let rules = RuleSet::decode(&content::read_all(store, &s.rules).await?)?;
    let records = super::show::records(store, s, &RelPath::root()).await?;
    let cover = Cover::new(records, Some(rules.matcher()));
    Ok(View { root: s.root.clone(), trees: Box::new(Stored(store)), cover })
}

/// The workspace walked as a capture does; writes nothing, not even the cache.
pub(crate) async fn look(app: &App, place: &Place) -> Result<Observed> {
    let settings = app.observe_settings(place, false).await?;
    let root = place.root()?.clone();
    let (dir, at) = (place.settings.cache_dir.clone(), root.clone());
    let cache = blocking(move || Ok(StatCache::load(dir.as_deref(), &at))).await?;
    Ok(observe::observe(&app.ctx, &root, &settings, cache, None).await?.observed)
}

fn present(observed: &Observed) -> View<'_> {
    let records = observed.coverage.records.clone().unwrap_or_default();
    View {
        root: observed.root.clone(),
        trees: Box::new(ObservedTrees::new(observed)),
        cover: Cover::new(records, Some(observed.rules.matcher())),
    }
}

/// Files of the workspace, as long as they still are what was observed.
struct Workspace(Root);

#[async_trait]
impl ContentSource for Workspace {
    async fn content(&self, path: &RelPath, reference: &Ref) -> Result<Option<Bytes>> {
        let (root, path, want) = (self.0.clone(), path.clone(), reference.clone());
        blocking(move || {
            let read = fsx::read_stable(&root.dir, &path, |file, stat| {
                if stat.size != want.length {
                    return Err(ReadFailure::Moved);
                }
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(file, &mut bytes)?;
                let n = bytes.len() as u64;
                Ok((bytes, n))
            });
            match read {
                Ok((bytes, _)) if Digest::of(&bytes) == want.digest => Ok(Some(bytes.into())),
                Err(ReadFailure::Io(e)) => Err(e).context(|| format!("reading {path}")),
                Err(ReadFailure::Sink(e)) => Err(e),
                _ => Ok(None),
            }
        })
        .await
    }
}

fn document(place: &Place, from: &Snapshot, to: Value, changes: &[Change]) -> Value {
    json!({
        "workspace": place.workspace(),
        "from": { "snapshot": from.id, "label": from.label },
        "to": to,
        "changes": changes,
        "counts": ChangeCounts::of(changes),
    })
}

fn print(app: &App, args: &Args, changes: &[Change]) {
    for change in changes {
        if args.name_only {
            app.out.line(change.path.to_string());
        } else if args.patch {
            print_patch(app, change);
        } else if args.stat {
            app.out.line(format!("{}  {}", status(app, change), stat(app, change)));
        } else {
            app.out.line(status(app, change));
        }
        if app.out.is_broken() {
            return;
        }
    }
    if args.stat {
        let c = ChangeCounts::of(changes);
        app.out.summary(format!(
            "{} added, {} deleted, {} changed, {} mode only, {} kind, {} not covered",
            c.added, c.deleted, c.modified, c.mode, c.kind, c.uncovered
        ));
    }
}

fn status(app: &App, change: &Change) -> String {
    let paint = match change.status {
        Status::Added => Paint::Good,
        Status::Deleted => Paint::Bad,
        _ => Paint::Warn,
    };
    let letter = app.out.paint(paint, &change.status.letter().to_string());
    let uncovered = match change.uncovered {
        Some(side) => format!("  (not covered: {})", json!(side).as_str().unwrap_or_default()),
        None => String::new(),
    };
    format!("{letter} {}{uncovered}", change.path)
}

fn stat(app: &App, change: &Change) -> String {
    let Some(text) = &change.text else { return String::new() };
    if text.binary {
        return "binary".to_owned();
    }
    if text.oversized {
        return "above 5 MiB".to_owned();
    }
    let lines = text.hunks.iter().flatten().flat_map(|h| &h.lines);
    let (mut added, mut deleted) = (0_u64, 0_u64);
    for line in lines {
        match line.kind {
            LineKind::Add => added += 1,
            LineKind::Delete => deleted += 1,
            LineKind::Context => {}
        }
    }
    let more = if text.truncated { " and more" } else { "" };
    let added = app.out.paint(Paint::Good, &format!("+{added}"));
    let deleted = app.out.paint(Paint::Bad, &format!("-{deleted}"));
    format!("{added} {deleted}{more}")
}

/// The patch byte for byte; colours go around whole lines.
fn print_patch(app: &App, change: &Change) {
    for line in patch(change).split_inclusive(|b| *b == b'\n') {
        let paint = match line {
            [b'+', ..] => Some(Paint::Good),
            [b'-', ..] => Some(Paint::Bad),
            [b'@', ..] => Some(Paint::Id),
            [b'd', ..] => Some(Paint::Bold),
            _ => None,
        };
        let body = line.strip_suffix(b"\n").unwrap_or(line);
        match (paint, std::str::from_utf8(body)) {
            (Some(paint), Ok(text)) => {
                app.out.bytes(app.out.paint(paint, text).as_bytes());
                app.out.bytes(&line[body.len()..]);
            }
            _ => app.out.bytes(line),
        }
    }
}
