//! The transaction's moves on real directories, without a store.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::apply::{apply, late_writes, verify};
use super::owner::Owner;
use super::revert::{finish, roll_back};
use super::stage::Stage;
use super::work::Work;
use crate::clock::{Cancel, Clock, Context, Faults, Host, IdSource, NoFaults, Silent, Timestamp};
use crate::diff::State;
use crate::error::{Error, Result};
use crate::fsx::Dir;
use crate::ids::Digest;
use crate::path::RelPath;
use crate::plan::{Op, Step};

struct Fixed;
impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}
impl IdSource for Fixed {
    fn fill(&self, buf: &mut [u8]) -> Result<()> {
        buf.fill(7);
        Ok(())
    }
}

/// Fails when a point was reached `n` times.
struct FailAt(&'static str, AtomicUsize);
impl Faults for FailAt {
    fn reach(&self, point: &str) -> Result<()> {
        if point == self.0 && self.1.fetch_sub(1, Ordering::SeqCst) == 1 {
            return Err(Error::failed("fault", "a test fault"));
        }
        Ok(())
    }
}

fn context(faults: Arc<dyn Faults>) -> Context {
    Context {
        clock: Arc::new(Fixed),
        ids: Arc::new(Fixed),
        host: Host::default(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults,
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, bytes).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
}

fn file(mode: u32, bytes: &[u8]) -> State {
    State::file(mode, bytes.len() as u64, Digest::of(bytes))
}

fn rel(path: &str) -> RelPath {
    RelPath::parse_text(path).expect("a path")
}

fn step(op: Op, path: &str, before: State, after: State) -> Step {
    Step { phase: 1, op, path: rel(path), before, after }
}

/// Everything below `dir` but staging: kind, mode, content, inode.
fn picture(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>, u64)> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).expect("readable") {
            let path = entry.expect("entry").path();
            let name = path.strip_prefix(dir).expect("below").to_string_lossy().into_owned();
            if name.starts_with(".backtrail-stage-") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).expect("stat");
            let bytes = if meta.is_dir() {
                todo.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("link").as_os_str().as_encoded_bytes().to_vec()
            } else {
                fs::read(&path).expect("content")
            };
            out.insert(name, (meta.mode(), bytes, meta.ino()));
        }
    }
    out
}

fn contents(p: BTreeMap<String, (u32, Vec<u8>, u64)>) -> BTreeMap<String, (u32, Vec<u8>)> {
    p.into_iter().map(|(k, (mode, bytes, _))| (k, (mode, bytes))).collect()
}

/// A workspace with one step of each kind.
fn scene(dir: &Path) -> Vec<Step> {
    write(&dir.join("edited"), b"now", 0o644);
    write(&dir.join("mode"), b"same", 0o644);
    write(&dir.join("extra/deep/file"), b"made by a run", 0o600);
    write(&dir.join("kind"), b"a file now", 0o644);
    write(&dir.join("wasdir/in"), b"inside", 0o644);
    symlink("nowhere", dir.join("link")).expect("link");
    fs::set_permissions(dir.join("extra"), fs::Permissions::from_mode(0o755)).expect("mode");
    fs::set_permissions(dir.join("extra/deep"), fs::Permissions::from_mode(0o755)).expect("mode");
    fs::set_permissions(dir.join("wasdir"), fs::Permissions::from_mode(0o755)).expect("mode");
    fs::create_dir(dir.join("narrow")).expect("directory");
    write(&dir.join("narrow/f"), b"x", 0o444);
    fs::set_permissions(dir.join("narrow"), fs::Permissions::from_mode(0o555)).expect("mode");
    vec![
        step(Op::Write, "edited", file(0o644, b"now"), file(0o755, b"then")),
        step(Op::Write, "fresh/a", State::absent(), file(0o600, b"fresh")),
        step(Op::Mkdir, "fresh", State::absent(), State::dir(0o700)),
        step(Op::Symlink, "link", State::symlink(b"nowhere"), State::symlink(b"edited")),
        step(Op::Chmod, "mode", file(0o644, b"same"), file(0o600, b"same")),
        step(Op::Write, "narrow/f", file(0o444, b"x"), file(0o444, b"y")),
        step(Op::ReplaceKind, "kind", file(0o644, b"a file now"), State::dir(0o750)),
        step(Op::Write, "kind/in", State::absent(), file(0o644, b"in it")),
        step(Op::ReplaceKind, "wasdir", State::dir(0o755), file(0o644, b"a file")),
        step(Op::Delete, "wasdir/in", file(0o644, b"inside"), State::absent()),
        step(Op::Delete, "extra/deep/file", file(0o600, b"made by a run"), State::absent()),
        step(Op::Rmdir, "extra", State::dir(0o755), State::absent()),
        step(Op::Rmdir, "extra/deep", State::dir(0o755), State::absent()),
        step(Op::Chmod, "narrow", State::dir(0o555), State::dir(0o500)),
    ]
}

/// Stages what the steps of [`scene`] put in place.
fn staged(dir: &Path, steps: &[Step]) -> Arc<Work> {
    let root = Arc::new(Dir::open(dir).expect("root"));
    let owner = Owner { transaction: "tx-0000000000000001".into(), ..Owner::default() };
    let stage = Stage::create(&root, &owner, steps).expect("staging");
    let new = dir.join(".backtrail-stage-0000000000000001/new");
    let bytes: [(usize, &[u8]); 5] =
        [(0, b"then"), (1, b"fresh"), (5, b"y"), (7, b"in it"), (8, b"a file")];
    for (n, content) in bytes {
        write(&new.join(n.to_string()), content, steps[n].after.mode);
    }
    symlink("edited", new.join("3")).expect("link");
    fs::create_dir(new.join("6")).expect("directory");
    Arc::new(Work::new(root, stage, steps.to_vec(), false).expect("work"))
}

fn expected() -> BTreeMap<String, (u32, Vec<u8>)> {
    let rows: [(&str, u32, &[u8]); 11] = [
        ("edited", 0o100755, b"then"),
        ("fresh", 0o040700, b""),
        ("fresh/a", 0o100600, b"fresh"),
        ("kind", 0o040750, b""),
        ("kind/in", 0o100644, b"in it"),
        ("link", 0o120777, b"edited"),
        ("mode", 0o100600, b"same"),
        ("narrow", 0o040500, b""),
        ("narrow/f", 0o100444, b"y"),
        ("wasdir", 0o100644, b"a file"),
        ("", 0, b""),
    ];
    rows.iter()
        .filter(|r| !r.0.is_empty())
        .map(|(name, mode, bytes)| ((*name).to_owned(), (*mode, bytes.to_vec())))
        .collect()
}

#[test]
fn every_kind_of_step_applies_and_verifies() {
    let dir = tempfile::tempdir().expect("temp");
    let steps = scene(dir.path());
    let work = staged(dir.path(), &steps);
    let checked = work.check(&Cancel::default(), 2).expect("as planned");
    let done = apply(&work, &context(Arc::new(NoFaults)), &checked).expect("applied");
    verify(&work, &done).expect("verified");
    assert!(late_writes(&work, &done).is_empty());
    assert_eq!(contents(picture(dir.path())), expected());
    work.stage.remove();
    assert!(!dir.path().join(".backtrail-stage-0000000000000001").exists());
}

#[test]
fn res_040_a_failure_at_any_step_puts_everything_back() {
    for fail in 1..=14 {
        let dir = tempfile::tempdir().expect("temp");
        let steps = scene(dir.path());
        let before = picture(dir.path());
        let work = staged(dir.path(), &steps);
        let checked = work.check(&Cancel::default(), 2).expect("as planned");
        let faults = Arc::new(FailAt("restore.step", AtomicUsize::new(fail)));
        apply(&work, &context(faults), &checked).expect_err("the fault");
        let reverted = roll_back(&work, Some(work.begun())).expect("rolled back");
        assert!(reverted.third.is_empty(), "at {fail}: {reverted:?}");
        work.stage.remove();
        assert_eq!(picture(dir.path()), before, "failing at step {fail}");
    }
}

#[test]
fn res_041_recovery_goes_both_ways_from_every_point() {
    for stop in 1..=15 {
        for forward in [true, false] {
            let dir = tempfile::tempdir().expect("temp");
            let steps = scene(dir.path());
            let before = picture(dir.path());
            let work = staged(dir.path(), &steps);
            let checked = work.check(&Cancel::default(), 2).expect("as planned");
            let faults = Arc::new(FailAt("restore.step", AtomicUsize::new(stop)));
            let _ = apply(&work, &context(faults), &checked);
            // A killed process: another one opens what it finds, twice over.
            for _ in 0..2 {
                let root = Arc::new(Dir::open(dir.path()).expect("root"));
                let at = [RelPath::root()];
                let stage = Stage::open(&root, "tx-0000000000000001", &at, &steps)
                    .expect("opens")
                    .expect("is there");
                let mut again = Work::new(root, stage, steps.clone(), false).expect("work");
                again.narrow.extend(work.narrow.clone());
                let out = if forward { finish(&again) } else { roll_back(&again, None) };
                let third = out.expect("recovers").third;
                assert!(third.is_empty(), "stop {stop} {forward}: {third:?}");
            }
            if forward {
                assert_eq!(contents(picture(dir.path())), expected(), "finish from {stop}");
            } else {
                assert_eq!(picture(dir.path()), before, "roll back from {stop}");
            }
        }
    }
}

#[test]
fn res_042_a_path_in_a_third_state_is_left_alone() {
    let dir = tempfile::tempdir().expect("temp");
    let steps = scene(dir.path());
    let work = staged(dir.path(), &steps);
    let checked = work.check(&Cancel::default(), 2).expect("as planned");
    apply(&work, &context(Arc::new(NoFaults)), &checked).expect("applied");
    fs::write(dir.path().join("edited"), b"mine").expect("edit");
    fs::write(dir.path().join("fresh/mine"), b"mine too").expect("edit");
    // Content of one side with another mode counts as that side (RES-043).
    fs::set_permissions(
        dir.path().join("link").parent().expect("dir").join("mode"),
        fs::Permissions::from_mode(0o640),
    )
    .expect("mode");
    let out = roll_back(&work, None).expect("rolled back");
    let third: Vec<_> = out.third.iter().map(|p| p.text().into_owned()).collect();
    assert_eq!(third, ["edited", "fresh"]);
    assert_eq!(fs::read(dir.path().join("edited")).expect("there"), b"mine");
    assert_eq!(fs::read(dir.path().join("fresh/mine")).expect("there"), b"mine too");
    assert_eq!(fs::read(dir.path().join("narrow/f")).expect("there"), b"x");
    let mode = fs::metadata(dir.path().join("mode")).expect("there").mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn res_046_an_edit_between_plan_and_swap_survives() {
    let dir = tempfile::tempdir().expect("temp");
    let steps = scene(dir.path());
    let work = staged(dir.path(), &steps);
    let checked = work.check(&Cancel::default(), 2).expect("as planned");
    // In place, and by a rename as editors do it.
    fs::write(dir.path().join("edited"), b"not").expect("edit");
    let e = apply(&work, &context(Arc::new(NoFaults)), &checked).expect_err("moved");
    assert_eq!(e.code(), "changed-since-plan");
    roll_back(&work, Some(work.begun())).expect("rolled back");
    assert_eq!(fs::read(dir.path().join("edited")).expect("there"), b"not");

    write(&dir.path().join("other"), b"now", 0o644);
    fs::rename(dir.path().join("other"), dir.path().join("edited")).expect("rename");
    let before = picture(dir.path());
    let e = apply(&work, &context(Arc::new(NoFaults)), &checked).expect_err("moved");
    assert_eq!(e.code(), "changed-since-plan");
    roll_back(&work, Some(work.begun())).expect("rolled back");
    assert_eq!(picture(dir.path()), before);
    fs::write(dir.path().join("edited"), b"else").expect("edit");
    assert_eq!(
        work.check(&Cancel::default(), 2).expect_err("differs").code(),
        "changed-since-plan"
    );
}

#[test]
fn res_047_a_writer_that_holds_the_old_file_open_is_noticed() {
    use std::io::Write;
    let dir = tempfile::tempdir().expect("temp");
    let steps = scene(dir.path());
    let work = staged(dir.path(), &steps);
    let checked = work.check(&Cancel::default(), 2).expect("as planned");
    let mut open =
        fs::OpenOptions::new().append(true).open(dir.path().join("edited")).expect("open");
    let done = apply(&work, &context(Arc::new(NoFaults)), &checked).expect("applied");
    assert!(late_writes(&work, &done).is_empty());
    open.write_all(b" and on").expect("late");
    let late: Vec<usize> = late_writes(&work, &done).into_iter().map(|(n, _)| n).collect();
    assert_eq!(late, [0]);
}

#[test]
fn res_054_a_hard_link_outside_keeps_its_content() {
    let dir = tempfile::tempdir().expect("temp");
    let outside = tempfile::tempdir().expect("temp");
    let steps = scene(dir.path());
    fs::hard_link(dir.path().join("edited"), outside.path().join("twin")).expect("link");
    let before = picture(dir.path());
    let work = staged(dir.path(), &steps);
    let checked = work.check(&Cancel::default(), 2).expect("as planned");
    let done = apply(&work, &context(Arc::new(NoFaults)), &checked).expect("applied");
    assert_eq!(done.hard_links_split, 1);
    assert_eq!(fs::read(outside.path().join("twin")).expect("there"), b"now");
    roll_back(&work, None).expect("rolled back");
    assert_eq!(picture(dir.path()), before, "one inode again");
}

#[test]
fn res_050_k35_a_link_on_the_way_is_never_followed() {
    let dir = tempfile::tempdir().expect("temp");
    let outside = tempfile::tempdir().expect("temp");
    write(&outside.path().join("a"), b"precious", 0o644);
    let steps = vec![step(Op::Write, "d/a", file(0o644, b"precious"), file(0o644, b"new"))];
    symlink(outside.path(), dir.path().join("d")).expect("link");
    let root = Arc::new(Dir::open(dir.path()).expect("root"));
    let owner = Owner { transaction: "tx-0000000000000001".into(), ..Owner::default() };
    let stage = Stage::create(&root, &owner, &steps).expect("staging");
    let work = Work::new(root, stage, steps, false).expect("work");
    assert!(work.check(&Cancel::default(), 2).is_err());
    let e = apply(&work, &context(Arc::new(NoFaults)), &[None]).expect_err("refused");
    assert_eq!(e.code(), "changed-since-plan");
    assert_eq!(fs::read(outside.path().join("a")).expect("there"), b"precious");
}

/// What a file system that folds case is asked: on this one both spellings are names of
/// their own, so that every move shows.
#[test]
fn another_spelling_is_put_back_and_rolled_back() {
    let after: [&[u8]; 2] = [b"then", b"now"];
    for (content, mode) in after.into_iter().zip([0o600, 0o644]) {
        for (stop, forward) in [(1, true), (2, true), (1, false), (2, false)] {
            let dir = tempfile::tempdir().expect("temp");
            write(&dir.path().join("d/a.txt"), b"now", 0o644);
            let before = picture(dir.path());
            let steps = vec![step(Op::Write, "d/a.txt", file(0o644, b"now"), file(mode, content))];
            let root = Arc::new(Dir::open(dir.path()).expect("root"));
            let owner = Owner { transaction: "tx-0000000000000001".into(), ..Owner::default() };
            let stage = Stage::create(&root, &owner, &steps).expect("staging");
            write(&dir.path().join(".backtrail-stage-0000000000000001/new/0"), content, mode);
            let mut work = Work::new(root, stage, steps, false).expect("work");
            work.respelled = BTreeMap::from([(rel("d/a.txt"), rel("d/A.txt"))]);
            let checked = work.check(&Cancel::default(), 2).expect("as planned");
            let faults = Arc::new(FailAt("restore.step", AtomicUsize::new(stop)));
            match apply(&work, &context(faults), &checked) {
                Ok(done) => drop(verify(&work, &done).expect("verified")),
                Err(_) => assert_eq!(stop, 1),
            }
            for _ in 0..2 {
                let out = if forward { finish(&work) } else { roll_back(&work, None) };
                assert!(out.expect("recovers").third.is_empty());
            }
            let now = picture(dir.path());
            if forward {
                assert!(!now.contains_key("d/a.txt"), "{now:?}");
                assert_eq!((now["d/A.txt"].0 & 0o7777, &now["d/A.txt"].1[..]), (mode, content));
            } else {
                assert_eq!(now, before);
            }
        }
    }
}
