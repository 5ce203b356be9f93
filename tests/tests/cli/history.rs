//! `list`, `show`, `label`: what they find and what they refuse.

use std::fs;

use backtrail_tests::cli::{Sandbox, id};
use serde_json::json;

use crate::sandbox;

/// Captures `n` states.
fn captures(s: &Sandbox, n: usize) -> Vec<String> {
    (0..n)
        .map(|i| {
            s.write("counter", format!("{i}\n"));
            s.capture()
        })
        .collect()
}

#[test]
fn cap_014_an_alias_does_not_move_the_head() {
    let s = sandbox();
    let ids = captures(&s, 2);
    let set = s.ok(["label", "old", &ids[0]]);
    assert_eq!(
        set,
        json!({ "label": "old", "snapshot": ids[0], "previous": null, "pinned": true })
    );
    assert_eq!(s.ok(["list"])["head"], ids[1]);
    assert_eq!(id(&s.ok(["show", "old"])), ids[0]);
    assert_eq!(id(&s.ok(["show", "latest"])), ids[1]);
}

#[test]
fn a_label_is_moved_only_when_asked_and_then_taken_away() {
    let s = sandbox();
    let ids = captures(&s, 2);
    s.ok(["label", "good", &ids[0], "--no-pin"]);
    let run = s.run(["label", "good", &ids[1], "--json"]).expect(4);
    assert_eq!(run.error_code(), "label-exists");
    let moved = s.ok(["label", "good", &ids[1], "--move"]);
    assert_eq!((&moved["snapshot"], &moved["previous"]), (&json!(ids[1]), &json!(ids[0])));
    s.ok(["label", "good", "--delete"]);
    s.run(["label", "good", "--delete"]).expect(6);
    s.run(["show", "good"]).expect(6);
    s.run(["label", "post:x:0", "--delete"]).expect(4);
}

#[test]
fn a_label_moved_away_is_shown_as_what_was() {
    let s = sandbox();
    s.write("a", "1");
    s.ok(["capture", "--label", "mark"]);
    s.write("a", "2");
    s.run(["capture", "--label", "mark", "--json"]).expect(4);
    s.ok(["capture", "--label", "mark", "--move"]);
    let out = s.run(["list"]).expect(0).out();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].contains("  mark  ") && lines[1].contains("[was mark]"), "{out}");
}

#[test]
fn cap_021_ambiguous_and_unknown_prefixes() {
    let s = sandbox();
    let mut ids = captures(&s, 2);
    // ids are hashes: go on until two of them begin alike
    let pair = loop {
        ids.sort();
        let twins = ids.windows(2).find(|w| w[0][..4] == w[1][..4]);
        if let Some(twins) = twins {
            break [twins[0].clone(), twins[1].clone()];
        }
        assert!(ids.len() < 4000, "no two ids of {} begin alike", ids.len());
        s.write("counter", format!("{}\n", ids.len()));
        ids.push(s.capture());
    };
    let run = s.run(["show", &pair[0][..4], "--json"]).expect(2);
    assert_eq!(run.error_code(), "ambiguous");
    assert!(pair.iter().all(|id| run.out().contains(id.as_str())), "{run}");
    assert_eq!(id(&s.ok(["show", &pair[0]])), pair[0]);
    let run = s.run(["show", "0000", "--json"]).expect(6);
    assert_eq!(run.error_code(), "not-found");
}

#[test]
fn cap_099_unknown_ids_and_runs_are_not_found_and_an_empty_chain_is_fine() {
    let s = sandbox();
    let empty = s.ok(["list"]);
    assert_eq!((&empty["snapshots"], &empty["head"]), (&json!([]), &json!(null)));
    s.run(["list"]).expect(0);
    for args in
        [&["show", "0123456789abcdef"][..], &["list", "--run", "nightly"], &["show", "latest"]]
    {
        s.run(args).expect(6);
    }
}

#[test]
fn cap_100_a_long_listing_stays_small() {
    let s = sandbox();
    for i in 0..300 {
        s.write(format!("d{}/f{i}", i % 20), "x");
    }
    captures(&s, 20);
    let run = s.run(["list", "--all", "--json"]).expect(0);
    // 200 snapshots must stay under 1 MB: no row may depend on the number of files
    assert!(run.stdout.len() / 20 < 5_000, "{} bytes for 20 snapshots", run.stdout.len());
    let some = s.ok(["list", "--limit", "3"]);
    assert_eq!(
        (some["snapshots"].as_array().expect("rows").len(), &some["total"]),
        (3, &json!(20))
    );
}

#[test]
fn cap_015_order_is_by_sequence() {
    let s = sandbox();
    let ids = captures(&s, 6);
    for limit in ["1", "3", "6"] {
        let list = s.ok(["list", "--limit", limit]);
        let got: Vec<&str> = list["snapshots"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|r| r["id"].as_str())
            .collect();
        let want: Vec<&String> = ids.iter().rev().take(limit.parse().expect("number")).collect();
        assert_eq!(got, want);
    }
}

#[test]
fn cap_018_lost_refs_are_rebuilt_with_a_notice() {
    let s = sandbox();
    for n in ["one", "two", "three"] {
        s.write("f", n);
        s.ok(["capture", "--label", n]);
    }
    s.ok(["label", "alias", "one"]);
    s.write("f", "four");
    let head = s.capture();
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let refs = s.store().join("workspaces").join(key).join("index.json");
    let text = fs::read(&refs).expect("refs");
    for broken in [Some(&b""[..]), Some(&text[..text.len() / 2]), Some(b"{}"), None] {
        match broken {
            Some(bytes) => fs::write(&refs, bytes).expect("write"),
            None => fs::remove_file(&refs).expect("remove"),
        }
        let list = s.ok(["list"]);
        assert!(list["rebuilt"].is_string(), "{list}");
        assert_eq!(
            (&list["head"], list["snapshots"].as_array().map(Vec::len)),
            (&json!(head), Some(4))
        );
        for n in ["one", "two", "three"] {
            s.ok(["show", n]);
        }
        assert!(s.run(["list"]).expect(0).stderr.contains("rebuilt from"));
    }
    s.write("f", "five");
    assert_eq!(s.ok(["capture"])["parent"], head);
    assert_eq!(s.ok(["list"])["rebuilt"], json!(null));
}

#[test]
fn cap_019_bad_documents_are_rows() {
    let s = sandbox();
    let ids = captures(&s, 3);
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let dir = s.store().join("workspaces").join(key).join("snapshots");
    fs::write(dir.join(format!("{}.json", ids[1])), "{").expect("write");
    fs::write(dir.join("odd.txt"), "?").expect("write");
    let run = s.run(["list", "--json"]).expect(7);
    let json = run.json();
    assert_eq!(json["unreadable"].as_array().map(Vec::len), Some(2), "{run}");
    let rows: Vec<&str> = json["snapshots"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|r| r["id"].as_str())
        .collect();
    assert_eq!(rows, [&ids[2], &ids[0]]);
    assert!(s.run(["list"]).expect(7).out().contains("corrupt"));
    fs::write(dir.join(format!("{}.json", ids[2])), "{").expect("write");
    s.write("counter", "after");
    let captured = s.ok(["capture"]);
    assert_eq!(captured["warnings"][0]["code"], "head-unreadable", "{captured}");
}
