//! What the machine could do at best: the bare work of a capture and a restore, nothing around it.
//!
//! `limits walk TREE THREADS`, `limits capture TREE THREADS STORE`, `limits restore STORE THREADS DEST`.
//! Each prints one number: the seconds it took. Nothing is synced.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use sha2::{Digest, Sha256};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A regular file as the walk found it.
struct File {
    path: PathBuf,
    size: u64,
    mode: u32,
    mtime: (i64, i64),
}

/// Directories still to be read, and how many of them are in work.
struct Queue {
    state: Mutex<(Vec<PathBuf>, usize)>,
    more: Condvar,
}

impl Queue {
    fn pop(&self) -> Option<PathBuf> {
        let mut state = self.state.lock().expect("no thread panics");
        loop {
            if let Some(dir) = state.0.pop() {
                return Some(dir);
            }
            if state.1 == 0 {
                return None;
            }
            state = self.more.wait(state).expect("no thread panics");
        }
    }

    /// Adds what a directory held and takes that directory off the count.
    fn done(&self, found: Vec<PathBuf>) {
        let mut state = self.state.lock().expect("no thread panics");
        state.1 = state.1 + found.len() - 1;
        state.0.extend(found);
        drop(state);
        self.more.notify_all();
    }
}

/// Reads one directory relative to its handle; `lstat`s every entry.
fn read_dir(dir: &Path, buf: &mut Vec<u8>, files: &mut Vec<File>) -> Outcome<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(dir, flags, Mode::empty())?;
    let mut subdirs = Vec::new();
    let mut entries = RawDir::new(&fd, buf.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let path = dir.join(OsStr::from_bytes(name.to_bytes()));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => subdirs.push(path),
            FileType::RegularFile => files.push(File {
                path,
                size: stat.st_size.try_into()?,
                mode: stat.st_mode & 0o777,
                mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            }),
            _ => {}
        }
    }
    Ok(subdirs)
}

fn walk(root: &Path, threads: usize) -> Outcome<Vec<File>> {
    let queue = Queue { state: Mutex::new((vec![root.to_path_buf()], 1)), more: Condvar::new() };
    let work = || -> Outcome<Vec<File>> {
        let (mut buf, mut files) = (Vec::with_capacity(64 * 1024), Vec::new());
        while let Some(dir) = queue.pop() {
            let found = read_dir(&dir, &mut buf, &mut files);
            queue.done(found?);
        }
        Ok(files)
    };
    std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        let mut files = Vec::new();
        for thread in all {
            files.extend(thread.join().expect("no thread panics")?);
        }
        Ok(files)
    })
}

/// Runs `f` over all items, a few at a time, on `threads` threads, each with its own buffer.
fn each<T: Sync>(
    items: &[T],
    threads: usize,
    f: impl Fn(&T, &mut Vec<u8>) -> Outcome<()> + Sync,
) -> Outcome<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Outcome<()> {
        let mut buf = Vec::new();
        loop {
            let start = next.fetch_add(8, Ordering::Relaxed);
            if start >= items.len() {
                return Ok(());
            }
            for item in &items[start..items.len().min(start + 8)] {
                f(item, &mut buf)?;
            }
        }
    };
    std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

fn read(path: &Path, size: u64, buf: &mut Vec<u8>) -> Outcome<()> {
    buf.clear();
    buf.reserve(usize::try_from(size)? + 1);
    fs::File::open(path)?.read_to_end(buf)?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn create(path: &Path, mode: u32) -> Outcome<fs::File> {
    Ok(fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?)
}

/// Walk, read, hash, write uncompressed objects by rename, and a manifest for `restore`.
fn capture(root: &Path, threads: usize, store: &Path) -> Outcome<()> {
    for i in 0..=255 {
        fs::create_dir_all(store.join(format!("{i:02x}")))?;
    }
    let files = walk(root, threads)?;
    let (staged, manifest) = (AtomicUsize::new(0), Mutex::new(String::new()));
    each(&files, threads, |file, buf| {
        read(&file.path, file.size, buf)?;
        let digest = hex(&Sha256::digest(&buf));
        let (dir, name) = digest.split_at(2);
        let object = store.join(dir).join(name);
        if object.symlink_metadata().is_err() {
            let temp =
                store.join(dir).join(format!(".t{}", staged.fetch_add(1, Ordering::Relaxed)));
            create(&temp, 0o444)?.write_all(buf)?;
            fs::rename(temp, object)?;
        }
        let rel = file.path.strip_prefix(root)?.display();
        let (s, ns) = file.mtime;
        let line = format!("{digest} {:o} {s} {ns} {} {rel}\n", file.mode, file.size);
        manifest.lock().expect("no thread panics").push_str(&line);
        Ok(())
    })?;
    Ok(fs::write(store.join("manifest"), manifest.into_inner()?)?)
}

/// Reads each object, checks its hash, creates the file with its mode and time.
fn restore(store: &Path, threads: usize, dest: &Path) -> Outcome<()> {
    let text = fs::read_to_string(store.join("manifest"))?;
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.splitn(6, ' ').collect()).collect();
    let path = |line: &Vec<&str>| dest.join(line[5]);
    let dirs: BTreeSet<_> =
        lines.iter().filter_map(|l| Some(path(l).parent()?.to_owned())).collect();
    dirs.iter().try_for_each(fs::create_dir_all)?;
    each(&lines, threads, |line, buf| {
        let (dir, name) = line[0].split_at(2);
        read(&store.join(dir).join(name), line[4].parse()?, buf)?;
        if hex(&Sha256::digest(&buf)) != line[0] {
            return Err(format!("object {} is wrong", line[0]).into());
        }
        let file = create(&path(line), u32::from_str_radix(line[1], 8)?)?;
        (&file).write_all(buf)?;
        let time = rustix::fs::Timespec { tv_sec: line[2].parse()?, tv_nsec: line[3].parse()? };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::futimens(&file, &times)?)
    })
}

fn main() -> Outcome<()> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let verb = args.first().and_then(|a| a.to_str()).unwrap_or_default();
    let path = |i: usize| args.get(i).ok_or("a path is missing");
    let threads: usize = args.get(2).and_then(|a| a.to_str()).ok_or("threads?")?.parse()?;
    let start = Instant::now();
    match verb {
        "walk" => drop(walk(path(1)?, threads)?),
        "capture" => capture(path(1)?, threads, path(3)?)?,
        "restore" => restore(path(1)?, threads, path(3)?)?,
        _ => return Err("limits walk|capture|restore".into()),
    }
    println!("{:.4}", start.elapsed().as_secs_f64());
    Ok(())
}
