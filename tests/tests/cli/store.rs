//! `prune`, `verify`, `size`: the store as a whole.

use std::fs;
use std::path::PathBuf;

use backtrail_tests::cli::Sandbox;
use serde_json::{Value, json};

use crate::sandbox;

fn objects(s: &Sandbox) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for dir in fs::read_dir(s.store().join("workspace-objects")).expect("objects") {
        for file in fs::read_dir(dir.expect("entry").path()).expect("list") {
            out.push(file.expect("entry").path());
        }
    }
    out.sort();
    out
}

#[test]
fn prune_previews_asks_and_does_what_it_showed() {
    let s = sandbox();
    for i in 0..6 {
        s.write("f", format!("{i}").repeat(5000));
        s.capture();
    }
    let args = ["prune", "--keep", "2", "--instant"];
    let plan = s.ok(args.iter().chain(&["--dry-run"]));
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(4), "{plan}");
    assert_eq!(s.ok(["list"])["total"], 6);
    // nobody to ask, and nothing happens
    let run = s.run(args.iter().chain(&["--json"])).expect(4);
    assert_eq!(run.error_code(), "confirmation-needed");
    assert_eq!(s.ok(["list"])["total"], 6);
    let done =
        s.ok(args.iter().chain(&["--yes", "--plan", plan["plan"].as_str().expect("digest")]));
    assert_eq!(done["removed"], plan["removed"]);
    assert_eq!(done["complete"], true);
    assert!(done["objects_deleted"].as_u64() > Some(0), "{done}");
    assert_eq!(s.ok(["list"])["total"], 2);
    assert_eq!(s.run(["show", "latest", "--cat", "f"]).expect(0).stdout, b"5".repeat(5000));
    let human = s.run(args.iter().chain(&["--yes"])).expect(0);
    assert!(human.out().starts_with("removed 0 snapshots"), "{human}");
    for bad in [["--keep", "0"], ["--keep", "-1"], ["--max-bytes", "20GBs"], ["--older-than", "0s"]]
    {
        s.run(["prune", bad[0], bad[1]]).expect(2);
    }
}

#[test]
fn a_pinned_label_protects_its_snapshot_from_prune() {
    let s = sandbox();
    for i in 0..4 {
        s.write("f", format!("{i}"));
        s.ok(["capture", "--label", &format!("n{i}")]);
    }
    let plan = s.ok(["prune", "--keep", "1", "--dry-run"]);
    assert_eq!(plan["removed"], json!([]), "{plan}");
    assert_eq!(plan["protected"].as_array().map(Vec::len), Some(4), "{plan}");
}

#[test]
fn a_store_that_is_not_there_prunes_to_zeros_and_is_not_created() {
    let s = sandbox();
    let done = s.ok(["prune", "--keep", "1", "--yes"]);
    assert_eq!((&done["removed"], &done["objects_deleted"]), (&json!([]), &json!(0)));
    s.ok(["size"]);
    s.ok(["verify", "--all"]);
    assert!(!s.store().exists());
}

#[test]
fn cap_102_verify_names_all_damage_and_ends_with_7() {
    let s = sandbox();
    for i in 0..12_u8 {
        // incompressible, so that each object lies raw under its name
        let bytes: Vec<u8> =
            (0..700_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ i).collect();
        s.write(format!("d/f{i}"), bytes);
    }
    s.capture();
    let clean = s.ok(["verify"]);
    assert_eq!(clean["damaged"], json!([]));
    assert!(clean["not_rehashed"].as_u64() > Some(0), "{clean}");
    assert_eq!(s.ok(["verify", "--deep"])["not_rehashed"], 0);
    let files = s.ok(["show", "latest", "--files"]);
    let digests: Vec<String> = files["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter(|f| f["kind"] == "file")
        .map(|f| f["digest"].as_str().expect("digest").to_owned())
        .collect();
    let place = |d: &String| {
        let all = objects(&s);
        let name = d[2..].to_owned();
        all.into_iter().find(|p| p.to_string_lossy().contains(&name)).expect("its object")
    };
    for d in &digests[..5] {
        let mut bytes = fs::read(place(d)).expect("read");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(place(d), bytes).expect("write");
    }
    for d in &digests[5..7] {
        let bytes = fs::read(place(d)).expect("read");
        fs::write(place(d), &bytes[..bytes.len() / 2]).expect("write");
    }
    let (a, b) = (place(&digests[7]), place(&digests[8]));
    fs::rename(&a, a.with_extension("x")).expect("rename");
    fs::rename(&b, &a).expect("rename");
    fs::rename(a.with_extension("x"), &b).expect("rename");
    let shallow = s.run(["verify", "--json"]).json();
    assert!(shallow["not_rehashed"].as_u64() > Some(0), "{shallow}");
    let deep = s.run(["verify", "--deep", "--json"]).expect(7).json();
    let damaged = deep["damaged"].as_array().expect("damaged");
    let mut named: Vec<&str> = damaged.iter().filter_map(|d| d["digest"].as_str()).collect();
    named.sort_unstable();
    let mut want: Vec<&str> = digests[..9].iter().map(String::as_str).collect();
    want.sort_unstable();
    assert_eq!(named, want);
    for d in damaged {
        assert_eq!(d["snapshots"].as_array().map(Vec::len), Some(1), "{d}");
        assert!(d["paths"][0].as_str().is_some_and(|p| p.starts_with("d/f")), "{d}");
    }
    // the printed command heals what the workspace still has
    let human = s.run(["verify", "--deep"]).expect(7).out();
    assert!(human.contains("backtrail capture --rehash"), "{human}");
    let healed = s.ok(["capture", "--rehash"]);
    assert!(healed["healed"].as_u64() >= Some(9), "{healed}");
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
}

#[test]
fn cap_101_size_counts_what_a_chain_alone_needs() {
    let mut s = sandbox();
    let noise = |seed: u64| -> Vec<u8> {
        let mut x = seed;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        };
        (0..100_000).map(|_| next()).collect()
    };
    s.write("shared", noise(1));
    s.write("own", noise(2));
    s.capture();
    let one = s.workspace().to_path_buf();
    s.set_workspace(s.top().join("other"));
    s.write("shared", noise(1));
    s.capture();
    let json = s.ok(["size", "--all"]);
    let chains = json["chains"].as_array().expect("chains");
    assert_eq!(chains.len(), 2);
    let bytes = |c: &Value, k: &str| c[k].as_u64().expect("bytes");
    let first = chains.iter().find(|c| c["head_bytes"] == 200_000).expect("the first");
    assert!((100_000..110_000).contains(&bytes(first, "unique_bytes")), "{first}");
    assert!((200_000..210_000).contains(&bytes(first, "reachable_bytes")), "{first}");
    assert_eq!(json["store"]["unreferenced_bytes"], 0);
    s.set_workspace(one);
    let own = s.ok(["size"]);
    assert_eq!(own["chains"].as_array().map(Vec::len), Some(1));
    s.run(["size", "--run", "nope"]).expect(6);
}
