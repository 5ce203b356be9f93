//! Objects: what is stored once, how, and how wrong ones heal.

use std::fs;
use std::path::PathBuf;

use backtrail_core::capture::Request;
use backtrail_core::error::Kind;
use backtrail_core::ids::Digest;
use backtrail_core::object::codec;
use backtrail_core::verify::Problem;
use backtrail_tests::cli::{Entry, Sandbox};
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::Lib;
use crate::{noise, sandbox};

/// The spelling under which content of these bytes lies in the store.
fn object_file(s: &Sandbox, bytes: &[u8], compressed: bool) -> PathBuf {
    let hex = Digest::of(bytes).hex();
    let zst = if compressed { ".zst" } else { "" };
    s.store().join("workspace-objects").join(&hex[..2]).join(format!("{}{zst}", &hex[2..]))
}

#[test]
fn cap_001_equal_content_is_one_object_across_files_workspaces_and_runs() {
    let mut s = sandbox();
    for name in ["a", "b", "d/c"] {
        s.write(name, "the same\n");
    }
    let first = s.ok(["capture"]);
    // the content, the trees of `d` and the root, the rule set
    assert_eq!(first["stored"]["objects"], 4, "{first}");
    run(async {
        let lib = Lib::of(&s).await;
        let chain = lib.run_chain("nightly").await;
        let done = lib.of_chain(chain).capture(&Request::default()).await.expect("a capture");
        assert!(done.created);
        assert_eq!(done.stored.objects, 0);
    });
    let other = s.top().join("other");
    fs::create_dir(&other).expect("mkdir");
    s.set_workspace(&other);
    s.write("x/moved", "the same\n");
    let third = s.ok(["capture"]);
    assert_eq!(third["stored"]["objects"], 2, "two trees only: {third}");
}

#[test]
fn cap_007_a_frame_that_expands_beyond_its_header_is_corrupt() {
    let s = sandbox();
    let claimed = vec![b'x'; 20_000];
    s.write("f", &claimed);
    s.capture();
    // the frame of much longer content under a header that claims 20,000 bytes
    let mut frame = codec::encode(&vec![b'x'; 6 << 20]).expect("it compresses");
    frame[8..16].copy_from_slice(&20_000_u64.to_le_bytes());
    fs::write(object_file(&s, &claimed, true), &frame).expect("write");
    s.run(["show", "latest", "--cat", "f"]).expect(7);
    run(async {
        let lib = Lib::of(&s).await;
        let e = lib.store.get_object(&Digest::of(&claimed)).await.expect_err("refused");
        assert_eq!(e.kind(), Kind::Corrupt, "{e}");
    });
}

#[test]
fn cap_008_damage_is_reported_and_heals_from_the_workspace() {
    let s = sandbox();
    let (flipped, lost) = (noise(1, 9000), noise(2, 9000));
    s.write("d/flipped", &flipped);
    s.write("lost", &lost);
    let first = s.capture();
    let file = object_file(&s, &flipped, false);
    let mut bytes = fs::read(&file).expect("object");
    bytes[4000] ^= 1;
    fs::write(&file, bytes).expect("write");
    fs::remove_file(object_file(&s, &lost, false)).expect("remove");
    run(async {
        let report = Lib::of(&s).await.verify_deep().await;
        assert_eq!(report.damaged.len(), 2, "{report:#?}");
        for (digest, problem, path) in [
            (Digest::of(&flipped), Problem::WrongBytes, "d/flipped"),
            (Digest::of(&lost), Problem::Missing, "lost"),
        ] {
            let row = report.damaged.iter().find(|d| d.digest == digest).expect("named");
            assert_eq!(row.problem, problem);
            let json = serde_json::to_value(row).expect("JSON");
            assert_eq!((&json["snapshots"][0], &json["paths"][0]), (&json!(first), &json!(path)));
        }
    });
    // nothing in the workspace changed, and still it is read and stored again
    let healed = s.ok(["capture"]);
    assert_eq!((&healed["healed"], &healed["created"]), (&json!(2), &json!(false)), "{healed}");
    run(async { Lib::of(&s).await.assert_clean().await });
    assert_eq!(s.run(["show", &first, "--cat", "lost"]).expect(0).stdout, lost);
    assert_eq!(s.ok(["capture"])["healed"], 0);
}

#[test]
fn cap_009_an_object_with_other_bytes_is_rewritten() {
    let s = sandbox();
    let bytes = noise(9, 5000);
    s.write("f", &bytes);
    s.capture();
    for wrong in [&b""[..], b"short", &noise(10, 5000)] {
        fs::write(object_file(&s, &bytes, false), wrong).expect("write");
        s.write("f", &bytes); // touched
        let again = s.ok(["capture"]);
        assert_eq!(again["healed"], 1, "{again}");
        assert_eq!(fs::read(object_file(&s, &bytes, false)).expect("object"), bytes);
    }
    run(async {
        let lib = Lib::of(&s).await;
        lib.assert_clean().await;
        let tree = lib.recorded("latest").await;
        assert_eq!(tree[&b"f"[..]], Entry::File(0o644, bytes));
    });
}

#[test]
fn cap_002_only_64_lower_case_digits_name_an_object() {
    let long = ["z".repeat(64), "a".repeat(63), "A".repeat(64), "a".repeat(65), "é".repeat(32)];
    let long = long.iter().map(String::as_str);
    for bad in ["", "a", "ab", "../../etc/passwd", "aa/bb", "\0"].into_iter().chain(long) {
        assert!(bad.parse::<Digest>().is_err(), "{bad:?}");
        assert!(serde_json::from_value::<Digest>(json!(bad)).is_err(), "{bad:?}");
    }
    let good = "a".repeat(64);
    let digest: Digest = good.parse().expect("a digest");
    assert_eq!(digest.hex(), good);
    run(async {
        let lib = Lib::of(&sandbox()).await;
        let e = lib.store.get_object(&digest).await.expect_err("none");
        assert_eq!(e.kind(), Kind::NotFound);
    });
}
