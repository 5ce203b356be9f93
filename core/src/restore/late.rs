//! Files that somebody kept open and wrote on after they were displaced: what they
//! hold at the commit is banked once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::{Applied, late_writes};
use super::bank::Banked;
use super::fresh;
use super::look::look_at;
use super::stage::step_name;
use super::work::Work;
use crate::capture::Recorder;
use crate::error::{Error, IoContext, Result};
use crate::fsx;
use crate::object::content;
use crate::path::RelPath;
use crate::snapshot::chain;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::label::Label;
use crate::snapshot::refs::Target;
use crate::snapshot::tree::{Body, Entry, Ref, Tree};
use crate::store::{DocKey, Expect, Store, docs};
use crate::tasks::blocking;

/// Lost races before it gives up.
const MAX_TRIES: usize = 10;
/// Looks at the displaced files before one that never rests rolls everything back.
const MAX_LOOKS: usize = 8;
/// A file that keeps growing is read up to here; the rest is lost to nobody but its
/// writer, who holds it open.
const MAX_LATE: u64 = 1 << 30;

/// What was written late.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Files that somebody wrote on.
    pub(super) files: BTreeSet<RelPath>,
    /// The bank that holds what they wrote last.
    pub(super) bank: Option<Label>,
}

/// Banks late writes until nobody writes any more.
///
/// Writes that come while the last ones are being banked are found by the next look. A
/// file that never rests cannot be held, so it may not be displaced: `file-in-use`, and
/// the caller rolls back.
pub(super) async fn bank(
    recorder: &Recorder,
    work: &Arc<Work>,
    done: &mut Applied,
    banked: &Banked,
) -> Result<Late> {
    let mut out = Late::default();
    for _ in 0..MAX_LOOKS {
        recorder.context().faults.reach("restore.late")?;
        let late = late_writes(work, done);
        if late.is_empty() {
            return Ok(out);
        }
        // The stat is taken before the content, so that a write in between counts as new.
        for (n, stat) in &late {
            done.displaced[*n] = Some(*stat);
            out.files.insert(work.steps[*n].path.clone());
        }
        let late: Vec<usize> = late.into_iter().map(|(n, _)| n).collect();
        out.bank = Some(bank_once(recorder, work, &late, banked).await?);
    }
    let paths = out.files.iter().map(|path| path.text().into_owned());
    let first = out.files.first().map(RelPath::to_string).unwrap_or_default();
    Err(Error::refused("file-in-use", format!("{first} is being written on all the time"))
        .with_paths(paths)
        .with_hint("stop what writes it, then run the command again"))
}

/// A snapshot like the bank, with the written-on files as they are now.
async fn bank_once(
    recorder: &Recorder,
    work: &Arc<Work>,
    late: &[usize],
    banked: &Banked,
) -> Result<Label> {
    let store = &**recorder.store();
    let hold = fresh::hold(recorder, "restore").await?;
    let mut changed: BTreeMap<RelPath, (u32, Ref)> = BTreeMap::new();
    for n in late {
        let (work, n) = (Arc::clone(work), *n);
        let path = work.steps[n].path.clone();
        let what = path.clone();
        let found = blocking(move || {
            let old = &work.stage.place(n).old;
            let read = fsx::read_small(old, &step_name(n), MAX_LATE);
            let Some(bytes) = read.context(|| format!("failed to read {what}"))? else {
                return Ok(None); // gone by now: there is nothing to bank
            };
            let now = look_at(old, &step_name(n)).ok().flatten();
            Ok(Some((bytes, now.map_or(0o600, |l| l.side.mode))))
        })
        .await?;
        if let Some((bytes, mode)) = found {
            changed.insert(path, (mode, fresh::put(store, &bytes).await?));
        }
    }
    let of = chain::read_snapshot(store, recorder.chain(), &banked.bank.snapshot).await?;
    let root = replace(store, &of.root, &changed).await?;
    let label = publish(recorder, of, root).await?;
    hold.release().await?;
    Ok(label)
}

/// The tree `root` with some files replaced.
async fn replace(
    store: &dyn Store,
    root: &Ref,
    changed: &BTreeMap<RelPath, (u32, Ref)>,
) -> Result<Ref> {
    let mut root = root.clone();
    for (path, (mode, content)) in changed {
        let names: Vec<&[u8]> = path.segments().collect();
        let Some((last, dirs)) = names.split_last() else { continue };
        let mut trees: Vec<Tree> = vec![content::load_tree(store, &root).await?];
        for name in dirs {
            let found = trees.last().and_then(|t| t.get(name)).map(|e| &e.body);
            let Some(Body::Dir(next)) = found else { return Err(gone(path)) };
            let next = next.clone();
            trees.push(content::load_tree(store, &next).await?);
        }
        let mut name = *last;
        let mut body = Body::File(content.clone());
        let mut mode = Some(*mode);
        for (tree, above) in trees.into_iter().rev().zip(dirs.iter().rev().map(Some).chain([None]))
        {
            let bytes = with(tree, name, mode.take(), body).encode()?;
            let reference = fresh::put(store, &bytes).await?;
            body = Body::Dir(reference.clone());
            match above {
                Some(above) => name = above,
                None => root = reference,
            }
            if above.is_none() {
                break;
            }
        }
    }
    Ok(root)
}

fn gone(path: &RelPath) -> Error {
    Error::failed("bank-failed", format!("the bank does not hold {path}"))
}

fn with(mut tree: Tree, name: &[u8], mode: Option<u32>, body: Body) -> Tree {
    match tree.entries.binary_search_by(|e| e.name.as_slice().cmp(name)) {
        Ok(at) => {
            let entry = &mut tree.entries[at];
            entry.mode = mode.unwrap_or(entry.mode);
            entry.body = body;
        }
        Err(at) => {
            let entry = Entry { name: name.to_vec(), mode: mode.unwrap_or(0o700), body };
            tree.entries.insert(at, entry);
        }
    }
    tree
}

/// Adds a snapshot with this root, otherwise like `of`, with a bank label of its own.
async fn publish(recorder: &Recorder, of: Snapshot, root: Ref) -> Result<Label> {
    let (store, ctx, chain) = (&**recorder.store(), recorder.context(), recorder.chain());
    let key = DocKey::Refs(chain.clone());
    for _ in 0..MAX_TRIES {
        let mut loaded = chain::load_refs(store, chain).await?;
        let refs = &mut loaded.refs;
        let label = Label::new(format!("bank:{}", refs.next_number("bank")))?;
        let mut snapshot = of.clone();
        snapshot.root = root.clone();
        snapshot.seq = refs.next_seq();
        snapshot.parent = refs.head.clone();
        snapshot.label = Some(label.clone());
        snapshot.delta = None;
        snapshot.parent_labels =
            refs.head.iter().flat_map(|h| refs.labels_of(h)).cloned().collect();
        snapshot.missed = Vec::new();
        snapshot.created_at = ctx.clock.now().rfc3339();
        snapshot.seal()?;
        docs::create(store, &snapshot.key(), &snapshot, None).await?;
        refs.head = Some(snapshot.id.clone());
        refs.head_seq = snapshot.seq;
        let (at, snapshot) = (snapshot.created_at.clone(), snapshot.id.clone());
        refs.labels.insert(label.clone(), Target { snapshot, at, attempt: None, pinned: false });
        let expect = loaded.version.clone().map_or(Expect::Absent, Expect::Version);
        match docs::save(store, &*ctx.ids, &key, &loaded.refs, expect, None).await {
            Err(e) if e.is_conflict() => {}
            done => return done.map(|_| label),
        }
    }
    Err(Error::failed("bank-failed", "refs kept changing"))
}
