//! Captures that are asked for again.

use std::path::Path;

use crate::sandbox;

/// True if any file below holds the text.
fn holds(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => holds(&path, text),
            false => {
                let bytes = std::fs::read(&path).expect("bytes");
                bytes.windows(text.len()).any(|w| w == text.as_bytes())
            }
        }
    })
}

#[test]
fn cap_027_a_capture_asked_for_again_gives_the_first_result() {
    let s = sandbox();
    s.write("a.txt", "one\n");
    let once = ["capture", "--operation-id", "order-4711", "--label", "first", "-m", "x"];
    let first = s.ok(once);
    assert_eq!(first["created"], true);
    s.write("a.txt", "two\n");
    let before = s.tree();
    let again = s.ok(once);
    assert_eq!((&again["id"], &again["seq"]), (&first["id"], &first["seq"]));
    assert_eq!((&again["label"], &again["counts"]), (&first["label"], &first["counts"]));
    assert_eq!(again["read"]["files"], 0);
    assert_eq!(s.tree(), before);
    assert_eq!(s.ok(["list"])["snapshots"].as_array().map(Vec::len), Some(1));
    // the same id for something else
    for other in [
        &["--label", "other", "-m", "x"][..],
        &["--label", "first", "-m", "y"],
        &["--label", "first", "-m", "x", "--max-files", "7"],
    ] {
        let args = ["capture", "--operation-id", "order-4711", "--json"].iter().chain(other);
        assert_eq!(s.run(args).expect(4).error_code(), "operation-reused", "{other:?}");
    }
    // the first one added no snapshot
    let head = s.ok(["capture", "-m", "now"]);
    let same = s.ok(["capture", "--operation-id", "order-4712"]);
    assert_eq!((&same["created"], &same["id"]), (&false.into(), &head["id"]));
    s.write("a.txt", "three\n");
    assert_eq!(s.ok(["capture", "--operation-id", "order-4712"])["id"], head["id"]);
    assert_ne!(s.ok(["capture", "--operation-id", "order-4713"])["id"], head["id"]);
    assert!(!holds(&s.store(), "order-471"));
    for bad in ["", " ", &"x".repeat(2049)] {
        s.run(["capture", "--operation-id", bad]).expect(2);
    }
}
