//! `show`: one snapshot in words, its entries, what it does not cover, its rules, or
//! the exact bytes of one of its files.

use std::path::PathBuf;

use backtrail_core::error::{Error, Result};
use backtrail_core::object::content;
use backtrail_core::path::{RelPath, quoted};
use backtrail_core::snapshot::chain::{load_refs, resolve};
use backtrail_core::snapshot::coverage::{Record, State, decode_records};
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::refs::Refs;
use backtrail_core::snapshot::tree::{Body, Ref};
use backtrail_core::store::Store;
use futures::StreamExt as _;
use serde_json::{Map, Value, json};

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};
use crate::tree::{self, Listing};

/// Arguments of `show`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail show latest
  backtrail show latest~1 --files
  backtrail show before-refactor src --files
  backtrail show 9f3c21 --skipped
  backtrail show latest --cat src/main.rs > main.rs.old")]
pub(crate) struct Args {
    /// Which: latest, a label, an id or its beginning, each with ~N for N before it
    #[arg(value_name = "SNAP")]
    snapshot: String,
    /// Only this path and what lies below it
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// List the entries
    #[arg(long)]
    files: bool,
    /// List what is not covered, and why
    #[arg(long)]
    skipped: bool,
    /// Show the rules in force then
    #[arg(long)]
    rules: bool,
    /// Print the exact bytes of one file
    #[arg(long, value_name = "PATH", conflicts_with_all = ["path", "files", "skipped", "rules", "json"])]
    cat: Option<PathBuf>,
}

/// Shows.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let place = app.history().await?;
    let store = &*place.store;
    let s = resolve(store, &place.chain, &args.snapshot).await?;
    if let Some(path) = &args.cat {
        let path = crate::paths::in_snapshot(place.root.as_ref(), path)?;
        return cat(app, store, &s, &path).await;
    }
    let under = match &args.path {
        Some(path) => crate::paths::in_snapshot(place.root.as_ref(), path)?,
        None => RelPath::root(),
    };
    let refs = load_refs(store, &s.chain).await?.refs;
    let files = args.files || args.path.is_some();
    let listing = if files { Some(tree::list(store, &s, &under).await?) } else { None };
    let records = if args.skipped { Some(records(store, &s, &under).await?) } else { None };
    let rules = if args.rules { Some(rules(store, &s.rules).await?) } else { None };
    if app.out.is_json() {
        app.out.json(&document(&s, &refs, listing.as_ref(), records.as_deref(), rules)?);
    } else {
        if listing.is_none() && records.is_none() && rules.is_none() {
            describe(app, &s, &refs);
        }
        if let Some(l) = &listing {
            print_files(app, l);
        }
        if let Some(r) = &records {
            print_records(app, r);
        }
        if let Some(r) = &rules {
            print_rules(app, r);
        }
    }
    let damaged = listing.is_some_and(|l| !l.damaged.is_empty());
    Ok(if damaged { exit::CORRUPT } else { exit::COMPLETE })
}

async fn cat(app: &App, store: &dyn Store, s: &Snapshot, path: &RelPath) -> Result<Code> {
    let entry = tree::find(store, s, path).await?;
    let Body::File(reference) = &entry.body else {
        return Err(Error::invalid(format!("{path} is no file in snapshot {}", s.id)));
    };
    // Chunks are hashed one by one, so what was printed before an error was right.
    let mut chunks = content::chunks(store, reference);
    while let Some(bytes) = chunks.next().await {
        app.out.bytes(&bytes?);
        if app.out.is_broken() {
            break;
        }
    }
    Ok(exit::COMPLETE)
}

/// All coverage records at or below `under`, or about a directory above it.
pub(crate) async fn records(
    store: &dyn Store,
    s: &Snapshot,
    under: &RelPath,
) -> Result<Vec<Record>> {
    let mut all = match (&s.coverage.records, &s.coverage.records_ref) {
        (Some(records), _) => records.clone(),
        (None, Some(r)) => decode_records(&content::read_all(store, r).await?)?,
        (None, None) => Vec::new(),
    };
    all.retain(|r| r.path.starts_with(under) || under.starts_with(&r.path));
    Ok(all)
}

async fn rules(store: &dyn Store, reference: &Ref) -> Result<Value> {
    let bytes = content::read_all(store, reference).await?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::corrupt("the recorded rules are not readable").with_source(e))
}

fn document(
    s: &Snapshot,
    refs: &Refs,
    listing: Option<&Listing>,
    records: Option<&[Record]>,
    rules: Option<Value>,
) -> Result<Map<String, Value>> {
    let value = serde_json::to_value(s)
        .map_err(|e| Error::invalid("the snapshot cannot be written").with_source(e))?;
    let Value::Object(mut map) = value else { return Ok(Map::new()) };
    map.insert("labels".into(), json!(refs.labels_of(&s.id).collect::<Vec<_>>()));
    map.insert(
        "notes".into(),
        json!(refs.notes.iter().filter(|n| n.snapshot == s.id).collect::<Vec<_>>()),
    );
    if let Some(l) = listing {
        let damaged =
            l.damaged.iter().map(|(path, e)| json!({ "path": path, "error": e.message() }));
        map.insert("files".into(), l.rows.iter().map(tree::Row::json).collect());
        map.insert("damaged".into(), damaged.collect());
    }
    if let Some(r) = records {
        map.insert("records".into(), json!(r));
    }
    if let Some(r) = rules {
        map.insert("rule_set".into(), r);
    }
    Ok(map)
}

fn describe(app: &App, s: &Snapshot, refs: &Refs) {
    let out = &app.out;
    let row = |name: &str, text: String| {
        out.line(format!("{} {text}", out.paint(Paint::Dim, &format!("{name:<11}"))));
    };
    row("snapshot", out.paint(Paint::Id, s.id.as_str()));
    row("chain", format!("{}, number {}", s.chain, s.seq));
    let labels: Vec<String> = refs.labels_of(&s.id).map(ToString::to_string).collect();
    row("labels", if labels.is_empty() { "-".into() } else { labels.join(", ") });
    if let Some(l) = s.label.as_ref().filter(|l| !labels.contains(&l.to_string())) {
        row("was", l.to_string());
    }
    row("parent", s.parent.as_ref().map_or("-".into(), ToString::to_string));
    row(
        "made",
        format!("{} ({}) by {}", format::age(&s.created_at, app.now()), s.created_at, s.tool),
    );
    let notes = refs.notes.iter().filter(|n| n.snapshot == s.id).map(|n| &n.message);
    for text in s.message.iter().chain(notes) {
        row("message", text.clone());
    }
    row("workspace", format!("{} on {}", s.workspace.root, s.workspace.host));
    let c = s.counts;
    let holds = [
        format::count(c.files, "file"),
        format::count(c.directories, "directory"),
        format::count(c.symlinks, "link"),
        format::bytes(c.bytes),
    ];
    row("holds", holds.join(", "));
    if let Some(d) = s.delta {
        row(
            "changes",
            format!("{} added, {} modified, {} deleted", d.added, d.modified, d.deleted),
        );
    }
    for m in &s.missed {
        row("missed", format!("{}: {}", m.label, m.reason));
    }
    if let Some(b) = &s.bank {
        row("bank of", format!("{}, before {} was put back", b.transaction, b.target));
    }
    coverage(app, s);
}

fn coverage(app: &App, s: &Snapshot) {
    let out = &app.out;
    let c = &s.coverage;
    let excluded: u64 = c.excluded.values().sum();
    let name = |n: &str| out.paint(Paint::Dim, &format!("{n:<11}"));
    let words = if c.complete { "complete" } else { "incomplete" };
    let mut parts: Vec<String> =
        c.skipped.iter().map(|(reason, n)| format!("{n} {}", reason.as_str())).collect();
    if c.unobserved > 0 {
        parts.push(format!("{} not looked into", format::count(c.unobserved, "directory")));
    }
    if excluded > 0 {
        parts.push(format!("{excluded} excluded by rules"));
    }
    let tail = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    out.line(format!("{} {words}{tail}", name("coverage")));
    if c.uncovered() > 0 {
        out.line(format!(
            "{} backtrail show {} --skipped",
            name(""),
            &s.id.as_str()[..super::SHORT]
        ));
    }
}

fn print_files(app: &App, l: &Listing) {
    for row in &l.rows {
        let e = &row.entry;
        let (kind, size, tail) = match &e.body {
            Body::File(r) => ('-', format::bytes(r.length), String::new()),
            Body::Dir(_) => ('d', String::new(), "/".to_owned()),
            Body::Symlink(to) => ('l', String::new(), format!(" -> {}", quoted(to))),
        };
        app.out.line(format!("{kind} {} {size:>10}  {}{tail}", format::mode(e.mode), row.path));
        if app.out.is_broken() {
            return;
        }
    }
    for (path, e) in &l.damaged {
        app.out.warn(&format!("{path}: {}", e.message()));
    }
}

fn print_records(app: &App, records: &[Record]) {
    for r in records {
        let state = if r.state == State::Unobserved { "unobserved" } else { "skipped" };
        let size = r.size.map(|n| format!(", {}", format::bytes(n))).unwrap_or_default();
        let error = r.error.as_ref().map(|e| format!(", {e}")).unwrap_or_default();
        app.out.line(format!("{state} {}  ({}{size}{error})", r.path, r.reason.as_str()));
    }
}

fn print_rules(app: &App, rules: &Value) {
    let out = &app.out;
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect()
    };
    for file in rules["files"].as_array().into_iter().flatten() {
        out.line(out.paint(Paint::Bold, file["path"].as_str().unwrap_or_default()));
        for (i, line) in list(&file["lines"]).iter().enumerate() {
            out.line(format!("{:>5}  {line}", i + 1));
        }
    }
    for name in ["always", "secrets", "secret_exceptions", "defaults", "markers"] {
        let items = list(&rules[name]);
        if !items.is_empty() {
            out.line(format!(
                "{} {}",
                out.paint(Paint::Bold, &format!("{name}:")),
                items.join(" ")
            ));
        }
    }
    out.line(format!("{} {}", out.paint(Paint::Bold, "limits:"), rules["limits"]));
}
