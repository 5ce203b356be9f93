//! What somebody or something took away, or damaged, of a restore: its staging, its
//! journal, its bank. Recovery has the store, and undo verifies what it will need.

use std::fs;
use std::path::PathBuf;

use backtrail_core::error::Kind;
use backtrail_core::restore::{self, Direction, Unasked};

use crate::kill::{killed, recover};
use crate::world::{World, picture};

const WAYS: [Direction; 2] = [Direction::Finish, Direction::RollBack];

fn staging(w: &World) -> PathBuf {
    let names = fs::read_dir(&w.ws).expect("readable").map(|e| e.expect("entry").path());
    let mut found = names.filter(|p| p.to_string_lossy().contains(".backtrail-stage-"));
    found.next().expect("a staging directory")
}

fn journals(w: &World) -> PathBuf {
    let key = w.root().key.to_string();
    w.store_dir.join("workspaces").join(key).join("journals")
}

#[tokio::test]
async fn a_staging_that_was_cleaned_away_is_fetched_again() {
    for direction in WAYS {
        let (_temp, w, before, after) = killed("restore.step", 20).await;
        fs::remove_dir_all(staging(&w)).expect("cleaned");
        let done = recover(&w, direction).await.expect("recovered");
        assert_eq!(done[0].third_count, 0, "{direction:?}: {done:?}");
        let right = if direction == Direction::Finish { &after } else { &before };
        assert_eq!(&w.picture(), right, "{direction:?}");
        w.capture().await;
        w.assert_no_staging();
    }
}

#[tokio::test]
async fn damaged_staged_content_is_never_put_in_place() {
    let (_temp, w, _, after) = killed("restore.step", 20).await;
    for staged in fs::read_dir(staging(&w).join("new")).expect("staged") {
        let staged = staged.expect("entry").path();
        if staged.is_file() {
            fs::write(staged, "evil").expect("damaged"); // as long as what belongs there
        }
    }
    let done = recover(&w, Direction::Finish).await.expect("finished");
    assert_eq!(done[0].third_count, 0, "{done:?}");
    assert_eq!(w.picture(), after);
}

/// Nothing is lost by putting the target there; going back leaves the deletion alone.
#[tokio::test]
async fn a_pending_file_that_was_deleted_is_in_nobodys_way() {
    for direction in WAYS {
        let (_temp, w, before, after) = killed("restore.step", 2).await;
        let pending = (0..40).filter(|i| i % 3 == 0).map(|i| format!("d{}/f{i}", i % 4));
        let pending: Vec<String> = pending.filter(|p| w.read(p) == "now").collect();
        let gone = pending.last().expect("a pending file");
        fs::remove_file(w.ws.join(gone)).expect("deleted");
        let done = recover(&w, direction).await.expect("recovered");
        if direction == Direction::Finish {
            assert_eq!((done[0].exit_code(), w.picture()), (0, after));
        } else {
            assert_eq!(done[0].exit_code(), 3, "{done:?}");
            assert_eq!(done[0].third[0].path.text(), gone.as_str());
            let mut right = before;
            right.remove(gone);
            assert_eq!(w.picture(), right);
        }
        w.capture().await;
        w.assert_no_staging();
    }
}

#[tokio::test]
async fn a_journal_that_the_store_lost_blocks_nobody() {
    for direction in WAYS {
        let (_temp, w, before, after) = killed("restore.step", 20).await;
        fs::remove_dir_all(journals(&w)).expect("lost");
        recover(&w, direction).await.expect("recovered");
        let right = if direction == Direction::Finish { &after } else { &before };
        assert_eq!(&w.picture(), right, "{direction:?}");
        w.capture().await;
        w.assert_no_staging();
    }
}

#[tokio::test]
async fn with_the_whole_store_gone_the_originals_stay_and_work_goes_on() {
    let (temp, w, before, after) = killed("restore.committed", 1).await;
    fs::remove_dir_all(&w.store_dir).expect("gone");
    // the next command opens what is there; a handle on what went away is of no use
    let w = World::existing(temp.path()).await;
    w.capture().await;
    assert_eq!(w.picture(), after);
    // The only copy of what was replaced is still there.
    let old = picture(&staging(&w).join("old"));
    let held: Vec<&Vec<u8>> = old.values().map(|(_, bytes)| bytes).collect();
    let replaced = before.iter().filter(|(path, was)| after.get(*path) != Some(*was));
    for (path, (_, bytes)) in replaced.filter(|(p, _)| w.ws.join(p).is_file()) {
        assert!(held.contains(&bytes), "{path} is lost");
    }
    let e = recover(&w, Direction::Finish).await.map(|d| d[0].warnings.clone());
    let said = e.expect("says so");
    assert!(said[0].message.contains("neither"), "{said:?}");
}

#[tokio::test]
async fn a_bank_without_its_trees_or_rules_is_stored_again_before_anything_changes() {
    for lost in ["trees", "rules", "flipped"] {
        let w = World::new().await;
        w.write("d/f", "one");
        w.write("d/e/g", "same");
        let target = w.capture().await;
        w.write("d/f", "two");
        w.write(".gitignore", "other rules than the target's\n");
        let head = w.capture().await;
        let before = w.picture();
        let object =
            |hex: &str| w.store_dir.join("workspace-objects").join(&hex[..2]).join(&hex[2..]);
        match lost {
            "rules" => fs::remove_file(object(&head.rules.digest.hex())).expect("lost"),
            "trees" => fs::remove_file(object(&head.root.digest.hex())).expect("lost"),
            _ => {
                let at = object(&head.root.digest.hex());
                let mut bytes = fs::read(&at).expect("there");
                *bytes.last_mut().expect("not empty") ^= 1;
                fs::write(&at, bytes).expect("flipped");
            }
        }
        w.restore(&target).await.expect(lost);
        assert_eq!(w.read("d/f"), "one");
        restore::undo(&w.recorder(), &Default::default(), &Unasked).await.expect(lost);
        assert_eq!(w.picture(), before, "{lost}");
    }
}

#[tokio::test]
async fn undo_removes_the_directories_that_were_made_whatever_the_rules_say_now() {
    let w = World::new().await;
    w.write("x/b", "1");
    let target = w.capture().await;
    fs::remove_dir_all(w.ws.join("x")).expect("removed");
    w.write(".gitignore", "*\n!b\n");
    let before = w.picture();
    w.restore(&target).await.expect("restored");
    assert_eq!(w.read("x/b"), "1");
    let undone = restore::undo(&w.recorder(), &Default::default(), &Unasked).await;
    undone.expect("undone");
    assert_eq!(w.picture(), before);
}

#[tokio::test]
async fn a_set_id_bit_that_was_left_out_is_no_later_edit() {
    let w = World::new().await;
    w.write_mode("s", b"1", 0o4755);
    let target = w.capture().await;
    w.write_mode("s", b"2", 0o4755);
    w.restore(&target).await.expect("restored");
    let undone = restore::undo(&w.recorder(), &Default::default(), &Unasked).await;
    assert_eq!(undone.expect("undone").counts.plan.kept, 0);
    assert_eq!(w.read("s"), "2");
}

#[tokio::test]
async fn nothing_is_restored_into_the_store_itself() {
    let w = World::new().await;
    w.write("a", "1");
    let target = w.capture().await;
    let request = restore::IntoRequest {
        tree: target.root.clone(),
        dest: w.store_dir.join("new"),
        paths: Default::default(),
        sync: false,
        special_modes: false,
        no_space_check: true,
        any_root: true,
        threads: 2,
    };
    let e = restore::restore_into(&*w.store, &w.context(), request).await.expect_err("refused");
    assert_eq!((e.kind(), e.code()), (Kind::Invalid, "unsafe-root"));
}
