//! Walking a local store: documents below a prefix, objects of a fan-out directory,
//! and the sweep of stale staging files.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Digest, is_hex};
use backtrail_core::store::{DocKey, Listed, ListedObject, Prefix};
use rustix::fs::FileType;

use super::documents::{read, version_of};
use super::fs::{self, Root};
use super::handle::Handle;
use super::objects;

/// Staging files and places of no run older than this were left by a process that died.
pub(super) const STALE: Duration = Duration::from_hours(24);
/// The deepest directory that may hold a document.
const MAX_DEPTH: usize = 6;
/// What lies at the top of a store beside documents.
const NOT_DOCUMENTS: &[&str] = &[objects::DIR, "locks", "tenants", "lost+found"];
/// What lies in a run's directory beside documents.
const RUN_FILES: &[&str] = &["events.jsonl", "run.log", "run.log.holes", ".pid"];

/// Documents found so far, with the key strings they sort by.
struct Found {
    rows: Vec<(String, Listed)>,
    now: Duration,
}

impl Handle {
    /// Every document below `prefix`, sorted by key, and what no key names.
    pub(super) fn list_documents(&self, prefix: &Prefix) -> Result<Vec<Listed>> {
        let Some(root) = self.read()? else {
            return Ok(Vec::new());
        };
        let mut found = Found { rows: Vec::new(), now: fs::file_clock() };
        let text = prefix.to_string();
        let top = text.trim_end_matches('/');
        match prefix {
            Prefix::RunRecords => found.run_records(&root, top)?,
            _ => found.walk(&root, top)?,
        }
        found.rows.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found.rows.into_iter().map(|(_, row)| row).collect())
    }

    /// The objects of one fan-out directory, and what is none of ours in it.
    pub(super) fn list_fan(&self, fan: &str) -> Result<Vec<ListedObject>> {
        let mut sizes: HashMap<Digest, (u64, Duration)> = HashMap::new();
        let mut out = Vec::new();
        for (digest, stored) in self.staged_below(fan) {
            sizes.insert(digest, (stored, Duration::ZERO));
        }
        if let Some(root) = self.read()? {
            scan_fan(&root, fan, &mut sizes, &mut out)?;
        }
        let objects = sizes.into_iter();
        out.extend(objects.map(|(digest, (stored, age))| ListedObject::Object {
            digest,
            stored,
            age,
        }));
        Ok(out)
    }

    /// What lies beside the fan-out directories and is no object.
    pub(super) fn list_odd(&self) -> Result<Vec<ListedObject>> {
        let Some(root) = self.read()? else {
            return Ok(Vec::new());
        };
        let failed = |e| root.error("list", objects::DIR, e);
        let dir = match root.dir(objects::DIR) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            dir => dir.map_err(failed)?,
        };
        let odd = |e: &fs::Entry| !is_hex(&e.name, 2) && !fs::is_staging(&e.name);
        let names = fs::entries(&dir).map_err(failed)?;
        Ok(names.into_iter().filter(odd).map(|e| ListedObject::Foreign(e.name)).collect())
    }

    /// Removes staging files older than a day, in every directory of the store.
    pub(super) fn sweep(&self) -> Result<()> {
        let Some(root) = self.read()? else {
            return Ok(());
        };
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            let fd = match root.dir(&dir) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                fd => fd.map_err(|e| root.error("sweep", &dir, e))?,
            };
            for entry in fs::entries(&fd).map_err(|e| root.error("sweep", &dir, e))? {
                // Objects are many and no directories: only staging names need a look.
                if dir.starts_with(objects::DIR)
                    && dir != objects::DIR
                    && !fs::is_staging(&entry.name)
                {
                    continue;
                }
                let rel = join(&dir, &entry.name);
                let stat =
                    fs::stat_in(&fd, &entry.name).map_err(|e| root.error("sweep", &rel, e))?;
                let Some(stat) = stat else { continue };
                let kind = FileType::from_raw_mode(stat.st_mode);
                // Tenants are stores of their own; what no link leads to is not ours.
                if kind == FileType::Directory && rel != "tenants" && rel != "lost+found" {
                    dirs.push(rel);
                } else if fs::is_staging(&entry.name)
                    && kind == FileType::RegularFile
                    && fs::age_of(&stat, fs::file_clock()) > STALE
                {
                    fs::unlink(&fd, &entry.name).map_err(|e| root.error("remove", &rel, e))?;
                }
            }
        }
        Ok(())
    }
}

fn scan_fan(
    root: &Root,
    fan: &str,
    sizes: &mut HashMap<Digest, (u64, Duration)>,
    odd: &mut Vec<ListedObject>,
) -> Result<()> {
    let rel = format!("{}/{fan}", objects::DIR);
    let failed = |e| root.error("list", &rel, e);
    let dir = match root.dir(&rel) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        dir => dir.map_err(failed)?,
    };
    let now = fs::file_clock();
    for entry in fs::entries(&dir).map_err(failed)? {
        if fs::is_staging(&entry.name) {
            continue;
        }
        let Some(stat) = fs::stat_in(&dir, &entry.name).map_err(failed)? else {
            continue;
        };
        let stem = entry.name.strip_suffix(".zst").unwrap_or(&entry.name);
        let digest = is_hex(stem, 62).then(|| format!("{fan}{stem}").parse::<Digest>());
        match digest {
            Some(Ok(digest)) if fs::is_file(&stat) => {
                let size = sizes.entry(digest).or_insert((0, Duration::MAX));
                size.0 += fs::len_of(&stat);
                size.1 = size.1.min(fs::age_of(&stat, now));
            }
            _ => odd.push(ListedObject::Foreign(format!("{fan}/{}", entry.name))),
        }
    }
    Ok(())
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

impl Found {
    /// Lists `top` and everything below it.
    fn walk(&mut self, root: &Root, top: &str) -> Result<()> {
        let mut dirs = vec![top.to_owned()];
        while let Some(dir) = dirs.pop() {
            let failed = |e| root.error("list", &dir, e);
            let fd = match root.dir(&dir) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                fd => fd.map_err(failed)?,
            };
            for entry in fs::entries(&fd).map_err(failed)? {
                let rel = join(&dir, &entry.name);
                if fs::is_staging(&entry.name) || is_no_document(&dir, &entry.name) {
                    continue;
                }
                let Some(stat) = fs::stat_in(&fd, &entry.name).map_err(failed)? else {
                    continue;
                };
                let key = entry.exact.then(|| DocKey::parse(&rel)).flatten();
                match (FileType::from_raw_mode(stat.st_mode), key) {
                    (FileType::RegularFile, Some(key)) => self.document(root, rel, key, &stat)?,
                    (FileType::Directory, None)
                        if entry.exact && rel.split('/').count() < MAX_DEPTH =>
                    {
                        dirs.push(rel);
                    }
                    _ => self.foreign(rel),
                }
            }
        }
        Ok(())
    }

    /// The run documents, without a look into them or at what else the runs have: there
    /// may be very many.
    fn run_records(&mut self, root: &Root, top: &str) -> Result<()> {
        let failed = |e| root.error("list", top, e);
        let dir = match root.dir(top) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            dir => dir.map_err(failed)?,
        };
        for entry in fs::entries(&dir).map_err(failed)? {
            let place = join(top, &entry.name);
            if fs::is_staging(&entry.name) {
                continue;
            }
            let rel = format!("{place}/run.json");
            let found = match fs::dir_in(&dir, &entry.name) {
                // No directory, or a link in its place; or a name that is no text.
                Err(e) if is_no_dir(&e) || e.kind() == io::ErrorKind::NotFound => None,
                run => run
                    .and_then(|run| fs::stat_in(&run, "run.json"))
                    .map_err(|e| root.error("list", &rel, e))?,
            };
            let key = entry.exact.then(|| DocKey::parse(&rel)).flatten();
            match (found, key) {
                (Some(stat), Some(key)) if fs::is_file(&stat) => {
                    let age = fs::age_of(&stat, self.now);
                    self.rows.push((rel, Listed::Doc { key, version: None, age }));
                }
                (Some(_), _) => self.foreign(rel),
                (None, _) => self.foreign(place),
            }
        }
        Ok(())
    }

    fn document(
        &mut self,
        root: &Root,
        rel: String,
        key: DocKey,
        stat: &rustix::fs::Stat,
    ) -> Result<()> {
        use backtrail_core::error::Kind;
        match read(root, &rel) {
            Ok(Some(body)) => {
                let age = fs::age_of(stat, self.now);
                self.rows.push((rel, Listed::Doc { key, version: Some(version_of(&body)), age }));
            }
            // Deleted while we looked.
            Ok(None) => {}
            Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Denied) => self.foreign(rel),
            Err(e) => return Err::<(), Error>(e),
        }
        Ok(())
    }

    fn foreign(&mut self, rel: String) {
        self.rows.push((rel.clone(), Listed::Foreign { name: rel }));
    }
}

fn is_no_dir(e: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(e), Some(Errno::NOTDIR | Errno::LOOP))
}

/// True for what a store holds beside documents, by its place.
fn is_no_document(dir: &str, name: &str) -> bool {
    match dir.split_once('/') {
        None if dir.is_empty() => NOT_DOCUMENTS.contains(&name),
        Some(("runs", run)) if !run.contains('/') => RUN_FILES.contains(&name),
        _ => false,
    }
}
