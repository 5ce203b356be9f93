//! Verify and size on a local store: CAP-008, CAP-101, CAP-102, K46, K57, K58.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use backtrail_core::capture::{Captured, Recorder, Request, Settings};
use backtrail_core::ids::{Chain, Digest};
use backtrail_core::prune::{Policy, prune};
use backtrail_core::size::size;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::store::{ListedObject, Store};
use backtrail_core::verify::{Problem, Report, Scope, verify};
use backtrail_core::workspace::Root;
use backtrail_tests::history::{History, Spec, run};
use futures::StreamExt;

async fn check(h: &History, deep: bool) -> Report {
    verify(&*h.store, &h.ctx, &Scope::All, deep).await.expect("verify")
}

async fn capture(h: &History, request: Request) -> Captured {
    let root = Root::open(&h.root, &h.ctx.host, false).expect("a root");
    let chain = Chain::Workspace(root.key.clone());
    let settings = Settings { cache_dir: Some(h.dir.path().join("cache")), ..Settings::default() };
    let recorder = Recorder::open(h.store.clone(), h.ctx.clone(), root, chain, settings);
    recorder.capture(&request).await.expect("a capture")
}

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(path, content).expect("a file");
}

/// Ten files that stay as they are when stored: too small to be compressed.
fn ten() -> Spec {
    let names: Vec<(String, String)> =
        (0..10).map(|i| (format!("d/f{i}"), format!("content number {i}"))).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    Spec::of(&pairs)
}

fn file_of(h: &History, i: usize) -> (Digest, std::path::PathBuf) {
    let digest = Digest::of(format!("content number {i}").as_bytes());
    (digest, h.object_file(&digest))
}

/// Flips a byte in five objects, cuts two, swaps two; what each is.
fn damage_nine(h: &History) -> BTreeMap<Digest, Problem> {
    let mut out = BTreeMap::new();
    for i in 0..5 {
        let (digest, path) = file_of(h, i);
        let mut bytes = std::fs::read(&path).expect("an object");
        bytes[3] ^= 1;
        std::fs::write(&path, bytes).expect("flipped");
        out.insert(digest, Problem::WrongBytes);
    }
    for i in 5..7 {
        let (digest, path) = file_of(h, i);
        std::fs::write(&path, b"con").expect("cut");
        out.insert(digest, Problem::Short);
    }
    let ((a, left), (b, right)) = (file_of(h, 7), file_of(h, 8));
    let bytes = std::fs::read(&left).expect("an object");
    std::fs::copy(&right, &left).expect("swapped");
    std::fs::write(&right, bytes).expect("swapped");
    out.extend([(a, Problem::WrongBytes), (b, Problem::WrongBytes)]);
    out
}

#[test]
fn cap_102_deep_lists_all_nine_and_shallow_says_what_it_did_not_check() {
    run(async {
        let h = History::new().await;
        let first = h.snapshot(&h.own(), ten()).await;
        let mut more = ten();
        more.files.insert("copy".into(), b"content number 0".to_vec());
        let second = h.snapshot(&h.own(), more).await;
        let whole = h.snapshot(&h.own(), Spec::of(&[("d/f9", "content number 9")])).await;
        let damage = damage_nine(&h);

        let shallow = check(&h, false).await;
        assert_eq!(shallow.not_rehashed, 10, "the files; trees and rules were read");
        let found: BTreeSet<Digest> = shallow.damaged.iter().map(|d| d.digest).collect();
        let cut: BTreeSet<Digest> = (5..7).map(|i| file_of(&h, i).0).collect();
        assert_eq!(found, cut, "a wrong length is seen without reading");

        let deep = check(&h, true).await;
        let found: BTreeMap<Digest, Problem> =
            deep.damaged.iter().map(|d| (d.digest, d.problem)).collect();
        assert_eq!(found, damage);
        assert!(!deep.is_clean() && deep.not_rehashed == 0);
        let both = BTreeSet::from([first.id.clone(), second.id.clone()]);
        for d in &deep.damaged {
            assert_eq!(d.hit.snapshots, both);
            let copies = u64::from(d.digest == file_of(&h, 0).0) + 1;
            assert_eq!((d.hit.path_count, d.hit.paths.len() as u64), (copies, copies));
        }
        assert_eq!(deep.restorable.whole, [whole.id]);
        assert_eq!(deep.restorable.partial.len(), 2);
        let listed = backtrail_core::damage::load(&*h.store).await.expect("a list").digests;
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), damage.into_keys().collect::<Vec<_>>());
    });
}

#[test]
fn k58_damaged_trees_and_documents_are_rows_and_the_rest_is_checked() {
    run(async {
        let h = History::new().await;
        let bad = h.snapshot(&h.own(), Spec::of(&[("sub/a", "lost with its tree")])).await;
        let good = h.snapshot(&h.own(), Spec::of(&[("b", "fine")])).await;
        let document = h.snapshot(&h.own(), Spec::of(&[("c", "unreadable")])).await;
        std::fs::remove_file(h.object_file(&bad.root.digest)).expect("removed");
        std::fs::write(h.doc_file(&document.key()), b"{").expect("cut");
        let report = check(&h, true).await;
        assert_eq!(report.unreadable.len(), 1);
        assert_eq!(report.damaged.len(), 1);
        let row = &report.damaged[0];
        assert_eq!((row.digest, row.problem), (bad.root.digest, Problem::Missing));
        assert_eq!(
            (row.hit.paths.as_slice(), &row.hit.snapshots),
            (&[".".to_owned()][..], &BTreeSet::from([bad.id]))
        );
        assert_eq!(report.restorable.whole, [good.id]);
    });
}

#[test]
fn content_in_chunks_is_checked_as_a_whole() {
    run(async {
        let h = History::new().await;
        let mut spec = Spec::default();
        let big: Vec<u8> = (0..9_500_000_u64).map(|i| ((i * i) >> 11) as u8).collect();
        spec.files.insert("big.bin".into(), big.clone());
        let good = h.snapshot(&h.own(), spec).await;
        assert!(check(&h, true).await.is_clean());
        // chunks that are right, under a whole that they do not make
        let mut lie = h.content(&big).await;
        assert!(lie.chunks.len() > 1);
        lie.digest = Digest::of(b"something else");
        let body = backtrail_core::snapshot::Body::File(lie.clone());
        let entry = backtrail_core::snapshot::Entry { name: b"lie".to_vec(), mode: 0o644, body };
        let tree = backtrail_core::snapshot::Tree { entries: vec![entry] };
        let root = h.content(&tree.encode().expect("a tree")).await;
        h.store.flush().await.expect("flush");
        let mut liar = Snapshot { root, seq: 1, parent: Some(good.id.clone()), ..good };
        liar.seal().expect("sealed");
        let body = serde_json::to_vec(&liar).expect("JSON").into();
        let absent = backtrail_core::store::Expect::Absent;
        h.store.put(&liar.key(), body, absent, None).await.expect("a document");
        assert!(check(&h, false).await.is_clean());
        let report = check(&h, true).await;
        assert_eq!(report.damaged.len(), 1, "{report:#?}");
        let row = &report.damaged[0];
        assert_eq!((row.digest, row.problem), (lie.digest, Problem::WrongBytes));
        assert_eq!(row.hit.paths, ["lie"]);
    });
}

#[test]
fn cap_008_damage_is_reported_and_healed_by_the_next_capture() {
    run(async {
        let h = History::new().await;
        write(&h.root, "a.txt", b"flipped soon");
        write(&h.root, "d/b.txt", b"removed soon");
        write(&h.root, "c.txt", b"fine");
        let first = capture(&h, Request::default()).await;
        let flipped = h.object_file(&Digest::of(b"flipped soon"));
        let mut bytes = std::fs::read(&flipped).expect("an object");
        bytes[0] ^= 1;
        std::fs::write(&flipped, bytes).expect("flipped");
        std::fs::remove_file(h.object_file(&Digest::of(b"removed soon"))).expect("removed");
        let report = check(&h, true).await;
        let paths: BTreeSet<_> = report.damaged.iter().flat_map(|d| d.hit.paths.clone()).collect();
        assert_eq!(paths, BTreeSet::from(["a.txt".to_owned(), "d/b.txt".to_owned()]));
        assert_eq!(report.damaged[0].hit.snapshots, BTreeSet::from([first.id.expect("an id")]));

        let again = capture(&h, Request::default()).await;
        assert!(again.healed > 0, "{:?}", again.healed);
        assert!(check(&h, true).await.is_clean());
        let left = backtrail_core::damage::load(&*h.store).await.expect("a list");
        assert!(left.digests.is_empty(), "{left:?}");
    });
}

#[test]
fn k57_a_missing_object_is_named_and_the_next_capture_heals_it() {
    run(async {
        let h = History::new().await;
        write(&h.root, "lost.txt", b"lost");
        write(&h.root, "other.txt", b"other");
        capture(&h, Request::default()).await;
        std::fs::remove_file(h.object_file(&Digest::of(b"lost"))).expect("removed");
        let request = backtrail_core::prune::Request::default();
        let e = prune(&*h.store, &h.ctx, &request).await.expect_err("refused");
        assert_eq!(e.paths(), ["lost.txt"]);
        let report = check(&h, false).await;
        assert_eq!(report.damaged.len(), 1);
        assert_eq!(report.damaged[0].problem, Problem::Missing);
        capture(&h, Request::default()).await;
        assert!(check(&h, true).await.is_clean());
        prune(&*h.store, &h.ctx, &request).await.expect("prune");
    });
}

async fn stored(store: &dyn Store) -> u64 {
    let mut rows = store.list_objects();
    let mut sum = 0;
    while let Some(row) = rows.next().await {
        if let ListedObject::Object { stored, .. } = row.expect("a listing") {
            sum += stored;
        }
    }
    sum
}

#[test]
fn cap_101_size_grows_by_new_content_and_unique_bytes_are_exact() {
    run(async {
        let h = History::new().await;
        let run_chain = h.run_chain("r-1", "finished").await;
        let mut file: Vec<u8> = (0..20_000_000_u64).map(|i| ((i * i) >> 13) as u8).collect();
        let mut sizes = Vec::new();
        for i in 0..4_u8 {
            file[usize::from(i) * 4_000_000] ^= 0x55;
            let mut spec = Spec::of(&[("small", "same everywhere")]);
            spec.files.insert("big.bin".into(), file.clone());
            h.snapshot(&h.own(), spec).await;
            sizes.push(stored(&*h.store).await);
        }
        let growth: Vec<u64> = sizes.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(growth.iter().all(|g| *g > 0 && *g < 10 << 20), "{growth:?}");
        h.snapshot(&run_chain, Spec::of(&[("small", "same everywhere"), ("x", "own")])).await;
        h.content(b"nobody's").await;
        h.store.flush().await.expect("flush");

        let report = size(&*h.store, &h.ctx, |_| true).await.expect("size");
        let of = |c: &Chain| report.chains.iter().find(|r| r.chain == *c).expect("a chain").clone();
        let (own, other) = (of(&h.own()), of(&run_chain));
        assert_eq!((own.snapshots, own.head_bytes), (4, 20_000_000 + 15));
        assert_eq!(report.store.stored_bytes, stored(&*h.store).await);
        assert_eq!(report.store.unreferenced_bytes, 8);
        // deleting the run's chain frees exactly its unique bytes
        let before = stored(&*h.store).await - 8;
        for s in backtrail_core::snapshot::chain::load_snapshots(&*h.store, &run_chain)
            .await
            .expect("snapshots")
            .0
            .values()
        {
            h.store.delete(&s.key(), None).await.expect("deleted");
        }
        let request = backtrail_core::prune::Request {
            grace: std::time::Duration::ZERO,
            policy: Policy::default(),
            ..Default::default()
        };
        prune(&*h.store, &h.ctx, &request).await.expect("prune");
        assert_eq!(before - stored(&*h.store).await, other.unique_bytes);
        assert_eq!(stored(&*h.store).await, own.reachable_bytes);
    });
}
