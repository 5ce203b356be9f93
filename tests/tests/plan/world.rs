//! Small worlds in memory, written as lines, as targets, observations and models.
//!
//! `a=text` a file (`@600` its mode, `*2` its links), `d/` a directory, `l->t` a link,
//! `x!reason` skipped, `x?reason` an unseen directory, `x#` excluded by a rule,
//! `.git#always` always out.

use std::collections::BTreeMap;
use std::sync::Arc;

use backtrail_core::diff::{Cover, Memory, State, StateKind};
use backtrail_core::fsx::{FileKind, Stat};
use backtrail_core::ids::Digest;
use backtrail_core::observe::{Observed, ObservedDir, ObservedEntry, What};
use backtrail_core::path::RelPath;
use backtrail_core::snapshot::coverage::{self, Coverage, Kind, Reason, Record};
use backtrail_core::snapshot::doc::Counts;
use backtrail_core::snapshot::tree::{Body, Entry, Ref, Tree};
use backtrail_core::workspace::rules::{Class, RuleFamily, RuleFile, RuleSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    File { content: String, mode: u32, links: u32 },
    Link(String),
    Dir(u32),
    Skipped(Reason),
    Unseen(Reason),
    Excluded(Class),
}

impl Item {
    pub(crate) fn is_covered(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link(_) | Self::Dir(_))
    }

    pub(crate) fn state(&self) -> State {
        match self {
            Self::File { content, mode, .. } => {
                State::file(*mode, content.len() as u64, Digest::of(content.as_bytes()))
            }
            Self::Link(t) => State::symlink(t.as_bytes()),
            Self::Dir(mode) => State::dir(*mode),
            _ => State::absent(),
        }
    }
}

/// Path → item; parents are there, 0755 unless they say otherwise.
pub(crate) type World = BTreeMap<RelPath, Item>;

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse_text(text).expect("a path")
}

fn reason(text: &str) -> Reason {
    serde_json::from_value(text.into()).expect("a reason")
}

fn item(line: &str) -> (RelPath, Item) {
    if let Some((p, target)) = line.split_once("->") {
        return (path(p), Item::Link(target.to_owned()));
    }
    if let Some((p, content)) = line.split_once('=') {
        let (content, links) = content.split_once('*').unwrap_or((content, "1"));
        let (content, mode) = content.split_once('@').unwrap_or((content, "644"));
        let mode = u32::from_str_radix(mode, 8).expect("a mode");
        let (content, links) = (content.to_owned(), links.parse().expect("links"));
        return (path(p), Item::File { content, mode, links });
    }
    if let Some((p, r)) = line.split_once('!') {
        return (path(p), Item::Skipped(reason(r)));
    }
    if let Some((p, r)) = line.split_once('?') {
        return (path(p), Item::Unseen(reason(r)));
    }
    if let Some((p, class)) = line.split_once('#') {
        let class = if class == "always" { Class::Always } else { Class::Rule };
        return (path(p), Item::Excluded(class));
    }
    let (p, mode) = line.split_once("/@").unwrap_or((line.trim_end_matches('/'), "755"));
    (path(p), Item::Dir(u32::from_str_radix(mode, 8).expect("a mode")))
}

pub(crate) fn world(lines: &[&str]) -> World {
    let mut out: World = lines.iter().map(|l| item(l)).collect();
    for p in out.keys().cloned().collect::<Vec<_>>() {
        let mut up = p.parent();
        while let Some(dir) = up.filter(|d| !d.is_root()) {
            up = dir.parent();
            out.entry(dir).or_insert(Item::Dir(0o755));
        }
    }
    out
}

/// The names directly in `dir`.
fn children<'w>(world: &'w World, dir: &RelPath) -> impl Iterator<Item = (&'w RelPath, &'w Item)> {
    world.iter().filter(move |(p, _)| p.parent().as_ref() == Some(dir))
}

fn file_ref(content: &str) -> Ref {
    Ref::whole(content.len() as u64, Digest::of(content.as_bytes()))
}

/// Adds the tree of `dir` and all below it.
fn add_tree(world: &World, dir: &RelPath, trees: &mut Memory) -> Ref {
    let mut entries = Vec::new();
    for (p, item) in children(world, dir) {
        let (mode, body) = match item {
            Item::File { content, mode, .. } => (*mode, Body::File(file_ref(content))),
            Item::Link(t) => (0, Body::Symlink(t.clone().into_bytes())),
            Item::Dir(mode) => (*mode, Body::Dir(add_tree(world, p, trees))),
            _ => continue,
        };
        entries.push(Entry { name: p.name().to_vec(), mode, body });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    trees.add(Tree { entries }).expect("a valid tree")
}

pub(crate) fn tree_of(world: &World, trees: &mut Memory) -> Ref {
    add_tree(world, &RelPath::root(), trees)
}

pub(crate) fn rules(lines: &str) -> RuleSet {
    let root = RelPath::root();
    let file = RuleFile::parse(&root, ".gitignore", lines.as_bytes()).0;
    let files = if lines.is_empty() { vec![] } else { vec![Arc::new(file)] };
    RuleSet::new(RuleFamily::Git, Default::default(), false).with_found(files, vec![])
}

fn stat_of(p: &RelPath, item: &Item) -> Stat {
    let (kind, mode, size, links) = match item {
        Item::File { content, mode, links } => (FileKind::File, *mode, content.len(), *links),
        Item::Link(t) => (FileKind::Symlink, 0o777, t.len(), 1),
        Item::Dir(mode) => (FileKind::Dir, *mode, 0, 1),
        Item::Skipped(Reason::Unsupported) => (FileKind::Special, 0o644, 0, 1),
        Item::Unseen(_) => (FileKind::Dir, 0o755, 0, 1),
        Item::Excluded(_) if !p.name().contains(&b'.') => (FileKind::Dir, 0o755, 0, 1),
        Item::Skipped(_) | Item::Excluded(_) => (FileKind::File, 0o644, 40 << 20, 1),
    };
    let inode = u64::from(Digest::of(p.as_bytes()).0[0]) + 100;
    Stat {
        kind,
        mode,
        size: size as u64,
        mtime_ns: 7,
        ctime_ns: 7,
        inode,
        device: 1,
        mount: 1,
        links,
        uid: 0,
        gid: 0,
    }
}

pub(crate) fn records(world: &World) -> Vec<Record> {
    let one = |(p, item): (&RelPath, &Item)| {
        let (state, reason) = match item {
            Item::Skipped(r) => (coverage::State::Skipped, *r),
            Item::Unseen(r) => (coverage::State::Unobserved, *r),
            _ => return None,
        };
        let stat = stat_of(p, item);
        let kind = match stat.kind {
            FileKind::Special => Kind::Special,
            FileKind::Dir => Kind::Dir,
            _ => Kind::File,
        };
        Some(Record {
            path: p.clone(),
            state,
            reason,
            kind,
            size: Some(stat.size),
            mtime_ns: Some(stat.mtime_ns),
            ctime_ns: Some(stat.ctime_ns),
            inode: Some(stat.inode),
            mode: Some(stat.mode),
            error: None,
        })
    };
    world.iter().filter_map(one).collect()
}

pub(crate) fn cover(world: &World, rule_lines: &str) -> Cover {
    Cover::new(records(world), Some(rules(rule_lines).matcher()))
}

pub(crate) fn observed(world: &World, rule_lines: &str) -> Observed {
    let mut dirs = Vec::new();
    let root = RelPath::root();
    add_dir(world, &root, None, &Item::Dir(0o755), &mut dirs);
    let mut counts = Counts::default();
    for item in world.values() {
        match item {
            Item::File { .. } => counts.files += 1,
            Item::Link(_) => counts.symlinks += 1,
            Item::Dir(_) => counts.directories += 1,
            _ => {}
        }
    }
    Observed {
        root: dirs[0].tree.clone().expect("the root is recorded"),
        dirs,
        counts,
        coverage: Coverage::new(records(world), BTreeMap::new()),
        rules: rules(rule_lines),
        warnings: vec![],
        read: (0, 0),
        reused: 0,
        started_ns: 0,
    }
}

fn add_dir(
    world: &World,
    dir: &RelPath,
    parent: Option<usize>,
    item: &Item,
    dirs: &mut Vec<ObservedDir>,
) -> usize {
    let at = dirs.len();
    dirs.push(ObservedDir {
        path: dir.clone(),
        parent,
        stat: stat_of(dir, item),
        recorded: true,
        excluded: None,
        tree: None,
        entries: vec![],
    });
    let mut entries = Vec::new();
    for (p, item) in children(world, dir) {
        let what = match item {
            Item::File { content, .. } => What::File(file_ref(content)),
            Item::Link(t) => What::Symlink(t.as_bytes().into()),
            Item::Dir(_) => What::Dir(add_dir(world, p, Some(at), item, dirs)),
            Item::Skipped(r) => What::Skipped(*r),
            Item::Unseen(r) => What::Unobserved(*r),
            Item::Excluded(class) => What::Excluded(*class),
        };
        entries.push(ObservedEntry { name: p.name().into(), stat: stat_of(p, item), what });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    dirs[at].entries = entries;
    dirs[at].tree = Some(add_tree(world, dir, &mut Memory::default()));
    at
}

/// Applies a plan's steps to a model, holding each to what it says is there.
pub(crate) fn apply(plan: &backtrail_core::plan::Plan, now: &World) -> BTreeMap<RelPath, State> {
    use backtrail_core::plan::Op;
    let covered = |(p, i): (&RelPath, &Item)| (p.clone(), i.state());
    let mut model: BTreeMap<RelPath, State> = now.iter().map(covered).collect();
    let below = |model: &BTreeMap<RelPath, State>, p: &RelPath| {
        model.keys().any(|k| k != p && k.starts_with(p))
    };
    for step in &plan.steps {
        let p = &step.path;
        let there = model.get(p).cloned().unwrap_or_else(State::absent);
        assert_eq!(there, step.before, "before of {p}");
        assert!(now.get(p).is_none_or(Item::is_covered), "{p} is not covered and has a step");
        let parent = p.parent().expect("never the root");
        let held = parent.is_root() || model.get(&parent).is_some_and(|s| s.kind == StateKind::Dir);
        assert!(held, "{p} has no directory to be in");
        match step.op {
            Op::Delete => assert!(step.before.is_leaf()),
            Op::Rmdir => assert!(!below(&model, p), "rmdir of {p}, which is not empty"),
            Op::ReplaceKind => assert!(!below(&model, p), "{p} gives way and is not empty"),
            Op::Write | Op::Symlink => assert!(!below(&model, p)),
            Op::Mkdir => assert!(step.before.is_absent()),
            Op::Chmod => assert!(step.before.same_content(&step.after)),
        }
        if step.after.is_leaf() && step.op != Op::Chmod {
            let body = plan.contents.get(p).expect("content of a step");
            let entry =
                Entry { name: p.name().to_vec(), mode: step.after.mode, body: body.clone() };
            assert_eq!(State::of_entry(&entry), step.after);
        }
        match step.after.is_absent() {
            true => model.remove(p),
            false => model.insert(p.clone(), step.after.clone()),
        };
    }
    model
}
