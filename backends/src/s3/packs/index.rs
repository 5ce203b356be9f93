//! The effective index: all index files but the superseded ones, without what they
//! condemn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use backtrail_core::ids::Digest;

use super::format::{Entry, IndexFile, PackTable};

/// An object in a pack.
#[derive(Clone, Debug)]
pub(in crate::s3) struct Place {
    pub(in crate::s3) pack: Arc<str>,
    pub(in crate::s3) entry: Entry,
}

/// What is known of a pack.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    pub(super) size: u64,
    /// What of it is not condemned.
    pub(super) live: Vec<Entry>,
    /// Its whole table: what is condemned takes its room until the pack is written anew.
    pub(super) all: Vec<Entry>,
}

impl Pack {
    /// Stored bytes that are not condemned.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|entry| u64::from(entry.stored)).sum()
    }
}

/// Where every packed object lies.
#[derive(Clone, Debug, Default)]
pub(in crate::s3) struct Index {
    places: HashMap<Digest, Vec<Place>>,
    pub(super) packs: BTreeMap<Arc<str>, Pack>,
}

impl Index {
    /// Merges what index files say.
    pub(super) fn of(files: &BTreeMap<String, Arc<IndexFile>>) -> Self {
        let old: HashSet<&str> =
            files.values().flat_map(|f| &f.supersedes).map(String::as_str).collect();
        let live = || files.iter().filter(|(name, _)| !old.contains(name.as_str())).map(|(_, f)| f);
        let mut gone: HashSet<(&str, Digest)> = HashSet::new();
        for (pack, digests) in live().flat_map(|f| &f.condemned) {
            gone.extend(digests.iter().map(|d| (pack.as_str(), *d)));
        }
        let mut index = Self::default();
        for table in live().flat_map(|f| &f.packs) {
            let id: Arc<str> = table.id.as_str().into();
            let alive = |entry: &&Entry| !gone.contains(&(table.id.as_str(), entry.digest));
            let live: Vec<Entry> = table.entries.iter().filter(alive).copied().collect();
            let pack = Pack { size: table.size, live, all: table.entries.clone() };
            // Two merges at once may both name a pack; once is enough.
            if let Some(twin) = index.packs.insert(id.clone(), pack.clone()) {
                index.forget(&id, &twin);
            }
            for entry in pack.live {
                let place = Place { pack: id.clone(), entry };
                index.places.entry(entry.digest).or_default().push(place);
            }
        }
        index
    }

    fn forget(&mut self, id: &Arc<str>, pack: &Pack) {
        for entry in &pack.live {
            if let Some(places) = self.places.get_mut(&entry.digest) {
                places.retain(|place| place.pack != *id);
            }
        }
    }

    /// Where an object lies; more than once after two writers stored it at once.
    pub(in crate::s3) fn places(&self, digest: &Digest) -> &[Place] {
        self.places.get(digest).map_or(&[], Vec::as_slice)
    }

    /// Whether an object of this raw length is packed.
    pub(in crate::s3) fn has(&self, digest: &Digest, raw: u64) -> bool {
        self.places(digest).iter().any(|place| u64::from(place.entry.raw) == raw)
    }

    /// Every packed object and its pack.
    pub(in crate::s3) fn objects(&self) -> impl Iterator<Item = (&Digest, &[Place])> {
        let all = self.places.iter().filter(|(_, places)| !places.is_empty());
        all.map(|(digest, places)| (digest, places.as_slice()))
    }

    pub(super) fn size(&self, pack: &str) -> Option<u64> {
        self.packs.get(pack).map(|pack| pack.size)
    }

    /// One file that says the same. Packs in which nothing is live are left out.
    pub(super) fn to_file(&self) -> IndexFile {
        let mut file = IndexFile::default();
        for (id, pack) in self.packs.iter().filter(|(_, pack)| !pack.live.is_empty()) {
            let live: HashSet<Digest> = pack.live.iter().map(|e| e.digest).collect();
            let gone = pack.all.iter().map(|e| e.digest).filter(|d| !live.contains(d));
            let gone: Vec<Digest> = gone.collect();
            if !gone.is_empty() {
                file.condemned.push((id.to_string(), gone));
            }
            let entries = pack.all.clone();
            file.packs.push(PackTable { id: id.to_string(), size: pack.size, entries });
        }
        file
    }
}
