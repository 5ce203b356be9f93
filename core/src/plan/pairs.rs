//! The names of one directory, of the target and on disk together.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::target::Side;
use crate::observe::{ObservedDir, ObservedEntry};
use crate::snapshot::tree::Entry;

/// One name with what each side has there.
#[derive(Debug)]
pub(super) struct Paired<'a> {
    pub(super) name: &'a [u8],
    pub(super) target: Option<&'a Entry>,
    pub(super) disk: Option<&'a ObservedEntry>,
    /// How the disk spells it, when it folds case and spells it otherwise.
    pub(super) respelled: Option<&'a [u8]>,
}

/// All names of a directory in byte order.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    pub(super) pairs: Vec<Paired<'a>>,
    /// Target names that are one name on a disk that folds case.
    pub(super) clashes: Vec<(&'a [u8], &'a [u8])>,
}

/// Pairs the names of both sides. Of a directory that is as recorded, only the disk's
/// are there.
pub(super) fn pairs<'a>(target: Side<'a>, disk: Option<&'a ObservedDir>, folds: bool) -> Names<'a> {
    let target = match target {
        Side::Tree(tree) => tree.entries.as_slice(),
        Side::Same | Side::Absent => &[],
    };
    let disk = disk.map_or(&[][..], |d| d.entries.as_slice());
    let mut out = Names { pairs: merge(target, disk), clashes: Vec::new() };
    if folds && !target.is_empty() {
        fold(&mut out);
    }
    out
}

fn merge<'a>(mut a: &'a [Entry], mut b: &'a [ObservedEntry]) -> Vec<Paired<'a>> {
    let mut out = Vec::with_capacity(a.len().max(b.len()));
    loop {
        let order = match (a.first(), b.first()) {
            (None, None) => return out,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.name.as_slice().cmp(&y.name),
        };
        let (mut target, mut disk) = (None, None);
        if order != Ordering::Greater
            && let Some((first, rest)) = a.split_first()
        {
            (target, a) = (Some(first), rest);
        }
        if order != Ordering::Less
            && let Some((first, rest)) = b.split_first()
        {
            (disk, b) = (Some(first), rest);
        }
        let name = target.map(|e| e.name.as_slice()).or(disk.map(|e| &*e.name));
        out.push(Paired { name: name.unwrap_or_default(), target, disk, respelled: None });
    }
}

/// On a disk that folds case, a target name and a disk name that differ in case alone
/// are one; two target names that do so cannot both be put back.
fn fold(names: &mut Names<'_>) {
    let mut wanted: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (i, pair) in names.pairs.iter().enumerate().filter(|(_, p)| p.target.is_some()) {
        match wanted.entry(folded(pair.name)) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(i);
            }
            std::collections::btree_map::Entry::Occupied(slot) => {
                names.clashes.push((names.pairs[*slot.get()].name, pair.name));
            }
        }
    }
    let mut moved = Vec::new();
    for (i, pair) in names.pairs.iter().enumerate().filter(|(_, p)| p.target.is_none()) {
        let other = wanted.get(&folded(pair.name)).copied();
        if let Some(to) = other.filter(|to| names.pairs[*to].disk.is_none()) {
            moved.push((i, to));
        }
    }
    for (from, to) in &moved {
        let (disk, name) = (names.pairs[*from].disk.take(), names.pairs[*from].name);
        (names.pairs[*to].disk, names.pairs[*to].respelled) = (disk, Some(name));
    }
    names.pairs.retain(|p| p.target.is_some() || p.disk.is_some());
}

/// What a folding file system compares, near enough: letters of any script lowered.
fn folded(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}
