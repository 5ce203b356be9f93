//! RUN-CL02, the part of the library: which run a text means.

use backtrail_core::error::Kind;
use backtrail_core::run::NewRun;

use super::{new_run, runs};
use crate::suite::{Site, refused};

/// RUN-CL02: an id, a unique prefix, a name, `latest`; ambiguous and unknown.
pub async fn cl02_which_run_a_text_means(site: &Site) {
    let runs = runs(site).await;
    let create = async |id: &str, name: Option<&str>, dir: &str| {
        let new = NewRun {
            name: name.map(str::to_owned),
            work_dir: Some(dir.into()),
            queued: true,
            ..new_run(id)
        };
        runs.create(new).await.expect("creates");
    };
    create("deploy-1", None, "/a").await;
    create("deploy-12", Some("friday"), "/b").await;
    create("test-7", Some("deploy"), "/a").await;
    create("test-8", Some("twice"), "/b").await;
    create("check-9", Some("twice"), "/b").await;
    let find = async |text: &str, dir: Option<&str>| {
        runs.resolve(text, dir).await.map(|run| run.id().to_string())
    };
    let found = [
        ("deploy-1", "deploy-1"),
        ("deploy-12", "deploy-12"),
        ("che", "check-9"),
        ("test-7", "test-7"),
        ("friday", "deploy-12"),
        ("flow-ploy-1", "deploy-1"),
        // A name is exact where a prefix is not.
        ("deploy", "test-7"),
    ];
    for (text, want) in found {
        assert_eq!(find(text, None).await.expect(text), want, "{text}");
    }
    assert_eq!(find("latest", None).await.expect("there"), "check-9");
    assert_eq!(find("latest", Some("/a")).await.expect("there"), "test-7");
    refused(find("latest", Some("/c")).await, Kind::NotFound);
    for (text, candidates) in [("test", ["test-7", "test-8"]), ("twice", ["check-9", "test-8"])] {
        let e = refused(find(text, None).await, Kind::Invalid);
        assert_eq!(e.code(), "ambiguous");
        let rows = e.details()["candidates"].as_array().expect("rows");
        for id in candidates {
            let row = rows.iter().filter_map(|r| r.as_str()).find(|r| r.starts_with(id));
            let row = row.unwrap_or_else(|| panic!("{id} in {rows:?}"));
            assert!(row.contains("s old") && row.contains("queued"), "{row}");
        }
    }
    for text in ["nothing", "deploy-123", "Friday"] {
        refused(find(text, None).await, Kind::NotFound);
    }
    refused(find("../x", None).await, Kind::Invalid);
}
