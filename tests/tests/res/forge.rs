//! Documents and objects that no capture writes, put into a sandbox's store: RES-009.

use std::fs;
use std::path::PathBuf;

use backtrail_core::ids::Digest;
use backtrail_core::store::docs;
use backtrail_tests::cli::{Sandbox, assert_same_tree};
use serde_json::{Map, Value, json};

use crate::{leftovers, refused, sandbox};

/// The workspace's place in the store.
fn place(s: &Sandbox) -> PathBuf {
    let dir = s.store().join("workspaces");
    let found = fs::read_dir(dir).expect("list").next().expect("one workspace");
    found.expect("entry").path()
}

/// The file of a snapshot's document.
pub(crate) fn document(s: &Sandbox, id: &str) -> PathBuf {
    place(s).join("snapshots").join(format!("{id}.json"))
}

fn read(path: &PathBuf) -> Map<String, Value> {
    let text = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("an object")
}

fn seal(doc: &mut Map<String, Value>) -> String {
    let digest = docs::digest_without(doc, &["id", "digest"]).hex();
    doc.insert("digest".into(), digest.clone().into());
    doc.insert("id".into(), digest[..16].into());
    digest[..16].to_owned()
}

/// Publishes a document under a label.
fn publish(s: &Sandbox, label: &str, doc: &Map<String, Value>) {
    let id = doc["id"].as_str().expect("an id");
    fs::write(document(s, id), serde_json::to_vec(doc).expect("JSON")).expect("written");
    let index = place(s).join("index.json");
    let mut refs = read(&index);
    refs["labels"][label] = json!({ "snapshot": id, "at": doc["created_at"] });
    fs::write(&index, serde_json::to_vec(&refs).expect("JSON")).expect("written");
}

/// The latest snapshot's document.
fn latest(s: &Sandbox) -> Map<String, Value> {
    read(&document(s, s.ok(["show", "latest"])["id"].as_str().expect("an id")))
}

/// A snapshot that is the latest one but for what `change` does.
fn forged(s: &Sandbox, label: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut doc = latest(s);
    change(&mut doc);
    seal(&mut doc);
    publish(s, label, &doc);
}

/// Two snapshots of one state whose ids begin with the same four digits.
pub(crate) fn alike(s: &Sandbox) -> [String; 2] {
    let mut doc = latest(s);
    let mut seen: std::collections::HashMap<String, Map<String, Value>> = Default::default();
    for n in 0.. {
        doc.insert("message".into(), format!("twin {n}").into());
        let id = seal(&mut doc);
        if let Some(other) = seen.insert(id[..4].to_owned(), doc.clone()) {
            publish(s, "twin-a", &doc);
            publish(s, "twin-b", &other);
            return [id, other["id"].as_str().expect("an id").to_owned()];
        }
    }
    unreachable!("ids run out of beginnings first")
}

/// Stores bytes as an object.
fn object(s: &Sandbox, bytes: &[u8]) -> Digest {
    let digest = Digest::of(bytes);
    let hex = digest.hex();
    let dir = s.store().join("workspace-objects").join(&hex[..2]);
    fs::create_dir_all(&dir).expect("mkdir");
    fs::write(dir.join(&hex[2..]), bytes).expect("written");
    digest
}

fn body(length: usize, digest: &Digest) -> Vec<u8> {
    [&(length as u64).to_le_bytes()[..], &digest.0, &0u32.to_le_bytes()].concat()
}

fn entry(kind: u8, mode: u32, name: &[u8], body: &[u8]) -> Vec<u8> {
    let length = (name.len() as u16).to_le_bytes();
    [&[kind][..], &length, &mode.to_le_bytes(), name, body].concat()
}

fn tree(entries: &[Vec<u8>]) -> Vec<u8> {
    let count = (entries.len() as u32).to_le_bytes();
    [b"BTT1", &count[..], &entries.concat()].concat()
}

/// A sandbox with a changed file, and entries to forge with.
struct Scene {
    s: Sandbox,
    file: Vec<u8>,
    dir: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let s = sandbox();
        s.write("a", "a\n");
        s.capture();
        s.write("a", "edited\n");
        s.write("mine", "mine\n");
        let file = body(2, &object(&s, b"a\n"));
        let inner = tree(&[entry(1, 0o644, b"f", &file)]);
        let dir = body(inner.len(), &object(&s, &inner));
        Self { s, file, dir }
    }

    fn file(&self, name: &[u8]) -> Vec<u8> {
        entry(1, 0o644, name, &self.file)
    }

    fn dir(&self, name: &[u8]) -> Vec<u8> {
        entry(2, 0o755, name, &self.dir)
    }

    /// A snapshot whose root is these bytes.
    fn root(&self, bytes: &[u8]) {
        let digest = object(&self.s, bytes).hex();
        let length = bytes.len();
        forged(&self.s, "bad", |doc| {
            doc.insert("root".into(), json!({ "digest": digest, "length": length }));
        });
    }

    /// Nothing of `bad` is restored in any form, and the message names `what`.
    #[track_caller]
    fn is_refused(&self, what: &str) {
        let now = self.s.tree();
        let into = self.s.top().join("into");
        for form in [
            vec!["restore", "bad", "--yes"],
            vec!["restore", "bad", "--dry-run"],
            vec!["restore", "bad", "--yes", "--on-conflict", "overwrite", "--no-delete"],
            vec!["restore", "bad", "--into", into.to_str().expect("text")],
        ] {
            let error = refused(&self.s, &form, 7);
            assert!(error.to_string().contains(what), "{what} is not named: {error}");
        }
        assert_same_tree(&self.s.tree(), &now);
        assert!(leftovers(&self.s).is_empty() && !into.exists());
        let beside = fs::read_dir(self.s.top()).expect("list").count();
        assert!(beside <= 3, "home, store and workspace alone");
    }
}

/// K82.
#[test]
fn res_009_k82_hostile_trees_are_refused_whole_and_named() {
    let scene = Scene::new();
    let good = scene.file(b"a");
    let names: [(&[u8], &str); 9] = [
        (b"../x", "../x"),
        (b"/abs", "/abs"),
        (b"b//c", "b//c"),
        (b".", "."),
        (b"..", ".."),
        (b".git", ".git"),
        (b".GIT", ".GIT"),
        (b"b\0c", "b"),
        (b".backtrail-stage-0123456789abcdef", ".backtrail-stage-0123456789abcdef"),
    ];
    for (name, said) in names {
        for bad in [scene.file(name), scene.dir(name)] {
            // In byte order, so that nothing but the name is wrong with it.
            let mut all = [(name.to_vec(), bad), (b"a".to_vec(), good.clone())];
            all.sort();
            scene.root(&tree(&all.map(|(_, e)| e)));
            scene.is_refused(said);
        }
    }
    scene.root(&tree(&[good.clone(), scene.file(b"")]));
    scene.is_refused("");
    scene.root(&tree(&[good.clone(), good.clone()]));
    scene.is_refused("a");
    // A file, and something below it: the same name twice.
    scene.root(&tree(&[good.clone(), scene.dir(b"a")]));
    scene.is_refused("a");
    scene.root(&tree(&[scene.file(b"b"), good.clone()]));
    scene.is_refused("a");
    scene.root(&tree(&[good.clone(), entry(3, 0, b"l", &[0, 0])]));
    scene.is_refused("l");
    scene.root(&tree(&[good.clone(), entry(7, 0o644, b"odd", &scene.file)]));
    scene.is_refused("odd");
    scene.root(&tree(&[good, entry(1, 0o10_0644, b"wide", &scene.file)]));
    scene.is_refused("wide");
    // Below a directory, named with it.
    let inner = tree(&[scene.file(b"..")]);
    let dir = body(inner.len(), &object(&scene.s, &inner));
    scene.root(&tree(&[entry(2, 0o755, b"deep", &dir)]));
    scene.is_refused("deep");
}

#[test]
fn res_009_counts_and_digests_beyond_belief() {
    let scene = Scene::new();
    scene.root(&[b"BTT1", &100_000_000u32.to_le_bytes()[..]].concat());
    scene.is_refused("count");
    let mut chunks = scene.file.clone();
    let at = chunks.len() - 4;
    chunks[at..].copy_from_slice(&100_000_000u32.to_le_bytes());
    scene.root(&tree(&[entry(1, 0o644, b"chunky", &chunks)]));
    scene.is_refused("chunky");
    scene.root(b"no tree at all");
    scene.is_refused("");
    // Bytes that are not what their name says.
    let honest = tree(&[scene.file(b"a"), scene.file(b"b")]);
    scene.root(&honest);
    let hex = Digest::of(&honest).hex();
    let path = scene.s.store().join("workspace-objects").join(&hex[..2]).join(&hex[2..]);
    fs::write(&path, tree(&[scene.file(b"a"), scene.file(b"c")])).expect("swapped");
    scene.is_refused(&hex);
    // Digests in documents.
    let root = latest(&scene.s)["root"]["digest"].as_str().expect("a digest").to_owned();
    for bad in [root.to_uppercase(), "../../x".into(), root[..63].into(), format!("{root}0")] {
        forged(&scene.s, "bad", |doc| doc["root"]["digest"] = bad.clone().into());
        scene.is_refused("");
    }
    for id in ["../x", "a/b", "..%2fx"] {
        let index = place(&scene.s).join("index.json");
        let whole = fs::read(&index).expect("refs");
        let mut refs = read(&index);
        refs["labels"]["bad"]["snapshot"] = id.into();
        fs::write(&index, serde_json::to_vec(&refs).expect("JSON")).expect("written");
        let now = scene.s.tree();
        let run = scene.s.run(["restore", "bad", "--yes", "--json"]);
        assert!([6, 7].contains(&run.code), "{id}: {run}");
        assert_same_tree(&scene.s.tree(), &now);
        fs::write(&index, whole).expect("written");
    }
}

/// A store in the workspace, and a snapshot that has something in its place.
#[test]
fn res_009_the_place_of_the_store_is_refused() {
    let scene = Scene::new();
    let mut s = scene.s;
    let inside = s.path("st");
    fs::rename(s.store(), &inside).expect("moved");
    std::os::unix::fs::symlink(&inside, s.store()).expect("link");
    s.env("BACKTRAIL_STORE", &inside);
    let scene = Scene { s, ..scene };
    for entry in [scene.file(b"st"), scene.dir(b"st")] {
        scene.root(&tree(&[scene.file(b"a"), entry]));
        let now = scene.s.run(["list"]).expect(0).out();
        for form in [vec!["restore", "bad", "--yes"], vec!["restore", "bad", "--dry-run"]] {
            let error = refused(&scene.s, &form, 7);
            assert!(error["message"].as_str().expect("text").contains("st"), "{error}");
        }
        assert_eq!(scene.s.run(["list"]).expect(0).out(), now);
        assert_eq!(fs::read(scene.s.path("a")).expect("there"), b"edited\n");
    }
}
