//! CLD-O1 to CLD-O11.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use backtrail_backends::open::OpenOptions;
use backtrail_core::error::Kind;
use backtrail_core::ids::Digest;
use backtrail_core::object::codec::Header;
use backtrail_core::store::{
    DeleteOutcome, ListedObject, MAX_BYTES, Object, PutObjects, PutOutcome, Store,
};
use futures::TryStreamExt;

use super::{Site, at_once, handles, noise, question, refused, store_all, text};

/// Every object listed, with its age; fails on a digest that comes twice.
pub async fn listed(store: &dyn Store) -> (HashMap<Digest, Duration>, usize) {
    let rows: Vec<ListedObject> = store.list_objects().try_collect().await.expect("lists");
    let (mut ages, mut foreign) = (HashMap::new(), 0);
    for row in rows {
        match row {
            ListedObject::Object { digest, age, stored } => {
                assert!(stored > 0);
                assert!(ages.insert(digest, age).is_none(), "{digest} is listed twice");
            }
            ListedObject::Foreign(_) => foreign += 1,
        }
    }
    (ages, foreign)
}

/// CLD-O1: a batch is answered item by item, and a failed one is named.
pub async fn o1_reports_per_item(site: &Site) {
    let store = site.open().await;
    let batch: Vec<Object> = (0..5).map(|i| noise(i, 100)).collect();
    let blocked = site.object_file(&batch[2].digest());
    if let Some(place) = &blocked {
        // Nothing can be stored where a directory is.
        std::fs::create_dir_all(place.join("x")).expect("makes");
    }
    let out = store.put_objects(batch.clone(), PutObjects::Check).await.expect("answers");
    assert_eq!(out.len(), 5);
    for (i, outcome) in out.iter().enumerate() {
        match outcome {
            PutOutcome::Failed(e) if i == 2 && blocked.is_some() => {
                assert!(e.message().contains(&batch[2].digest().hex()), "{e}");
            }
            PutOutcome::Stored { stored: 100 } => assert!(i != 2 || blocked.is_none()),
            other => panic!("item {i}: {other:?}"),
        }
    }
    store.flush().await.expect("flushes");
    let other = site.open().await;
    for (i, object) in batch.iter().enumerate().filter(|(i, _)| *i != 2) {
        let got = other.get_object(&object.digest()).await;
        assert_eq!(got.expect("the others are stored"), object.bytes(), "item {i}");
    }
    if blocked.is_some() {
        // Nor does it hide others when nobody looked before.
        let again = store.put_objects(batch.clone(), PutObjects::Rewrite).await.expect("answers");
        assert_eq!(again.len(), 5);
        let e = store.flush().await.expect_err("one is not stored");
        assert!(e.message().contains(&batch[2].digest().hex()), "{e}");
    }
}

/// CLD-O2: putting what is there is success, from many at once, and one copy is kept.
pub async fn o2_many_writers_one_copy(site: &Site) {
    let object = text(2, 100_000);
    let stores = handles(site, 16).await;
    let put = |i: usize| {
        let (stores, object) = (stores.clone(), object.clone());
        async move { store_all(&*stores[i], &[object.clone(), object]).await }
    };
    at_once(16, put).await;
    let store = site.open().await;
    let out = store.put_objects(vec![object.clone()], PutObjects::Check).await.expect("puts");
    assert!(matches!(out[..], [PutOutcome::Present]), "{out:?}");
    assert_eq!(listed(&*store).await.0.len(), 1);
    assert_eq!(store.get_object(&object.digest()).await.expect("reads"), object.bytes());
}

/// CLD-O4: what is there and wrong is never returned, and put makes it right.
pub async fn o4_wrong_is_healed(site: &Site) {
    let store = site.open().await;
    let objects = [noise(4, 300), text(4, 20_000)];
    store_all(&*store, &objects).await;
    let longer = [objects[0].bytes().as_ref(), b"!"].concat();
    let other = noise(5, 300);
    let same_length = [b"\0".as_ref(), &objects[0].bytes()[1..]].concat();
    let wrong: [&[u8]; 5] = [b"", &objects[0].bytes()[..299], &longer, other.bytes(), &same_length];
    for (i, bytes) in wrong.into_iter().enumerate() {
        for object in &objects {
            site.spoil(&object.digest(), bytes);
            let e = refused(store.get_object(&object.digest()).await, Kind::Corrupt);
            assert_eq!(e.details()["digest"], object.digest().hex());
            assert!(e.details().contains_key("found"), "{e:?}");
        }
        let mode = if i % 2 == 0 { PutObjects::Check } else { PutObjects::Rewrite };
        let out = store.put_objects(objects.to_vec(), mode).await.expect("puts");
        for outcome in out {
            match mode {
                PutObjects::Check => assert!(matches!(outcome, PutOutcome::Healed { .. })),
                PutObjects::Rewrite => assert!(matches!(outcome, PutOutcome::Stored { .. })),
            }
        }
        store.flush().await.expect("flushes");
        let other = site.open().await;
        for object in &objects {
            let got = other.get_object(&object.digest()).await;
            assert_eq!(got.expect("healed"), object.bytes());
        }
    }
}

/// CLD-O5: the own handle sees what it put; others see it at the latest after flush.
pub async fn o5_flush_is_the_barrier(site: &Site) {
    let store = site.open().await;
    let objects: Vec<Object> = (0..30).map(|i| noise(50 + i, 700)).collect();
    store.put_objects(objects.clone(), PutObjects::Check).await.expect("puts");
    let questions: Vec<_> = objects.iter().map(question).collect();
    assert_eq!(store.contains(&questions).await.expect("answers"), vec![true; 30]);
    assert_eq!(listed(&*store).await.0.len(), 30);
    assert_eq!(store.get_object(&objects[7].digest()).await.expect("own"), objects[7].bytes());
    if site.name == "memory" {
        // The reference forgets what was not flushed.
        let forgetful = site.open().await;
        assert_eq!(forgetful.contains(&questions).await.expect("answers"), vec![false; 30]);
    }
    store.flush().await.expect("flushes");
    store.flush().await.expect("has nothing to do");
    let other = site.open().await;
    assert_eq!(other.contains(&questions).await.expect("answers"), vec![true; 30]);
}

/// CLD-O6: exact bytes at every length; absent is `NotFound`, item by item.
pub async fn o6_exact_bytes(site: &Site) {
    let store = site.open().await;
    let lengths = [0, 1, 511, 512, 4095, 4096, 4097, 65_535, 65_536, 65_537, MAX_BYTES];
    let mut objects: Vec<Object> = lengths.iter().map(|n| noise(6, *n)).collect();
    objects.extend(lengths.iter().map(|n| text(6, *n)));
    store_all(&*store, &objects).await;
    let other = site.open().await;
    for object in &objects {
        let got = other.get_object(&object.digest()).await.expect("reads");
        assert!(got == object.bytes(), "{} bytes differ", object.bytes().len());
    }
    let absent = noise(7, 10).digest();
    refused(other.get_object(&absent).await, Kind::NotFound);
    let batch = [objects[3].digest(), absent, objects[0].digest()];
    let got = other.get_objects(&batch).await.expect("answers");
    assert_eq!(got[0].as_ref().expect("reads"), objects[3].bytes());
    assert_eq!(got[1].as_ref().expect_err("absent").kind(), Kind::NotFound);
    assert!(got[2].as_ref().expect("the empty content is always there").is_empty());
}

/// CLD-O7: `contains` never says yes to what a read would not give.
pub async fn o7_contains_is_never_wrong(site: &Site) {
    let store = site.open().await;
    let objects = [noise(70, 5_000), text(70, 50_000)];
    store_all(&*store, &objects).await;
    for object in &objects {
        let (digest, len) = question(object);
        let asked = [(digest, len), (digest, len - 1), (digest, 0), (noise(71, 9).digest(), 9)];
        let answers = store.contains(&asked).await.expect("answers");
        assert_eq!(answers, [true, false, false, false]);
        site.spoil(&digest, &object.bytes()[..40]);
        assert_eq!(store.contains(&[(digest, len)]).await.expect("answers"), [false]);
        store.delete_objects(&[digest]).await.expect("deletes");
        assert_eq!(store.contains(&[(digest, len)]).await.expect("answers"), [false]);
    }
    let empty = [(Digest::EMPTY, 0), (Digest::EMPTY, 1)];
    assert_eq!(store.contains(&empty).await.expect("answers"), [true, false]);
    assert!(store.contains(&[]).await.expect("answers").is_empty());
}

/// CLD-O8: a listing has each object once; what is none is counted apart.
pub async fn o8_listing_is_whole(site: &Site) {
    let store = site.open().await;
    assert!(listed(&*store).await.0.is_empty());
    let objects: Vec<Object> = (0..300).map(|i| noise(800 + i, 20)).collect();
    store_all(&*store, &objects).await;
    let mut odd = 0;
    if let Some(dir) = site.dir() {
        let top = dir.join("workspace-objects");
        let fan = top.join(&objects[0].digest().hex()[..2]);
        std::fs::write(top.join("notes.txt"), "x").expect("writes");
        std::fs::write(fan.join("UPPER"), "x").expect("writes");
        std::fs::write(fan.join(".tmp-0123456789abcdef"), "x").expect("writes");
        odd = 2;
    }
    let (ages, foreign) = listed(&*store).await;
    assert_eq!((ages.len(), foreign), (300, odd));
    assert!(objects.iter().all(|o| ages.contains_key(&o.digest())));
}

/// CLD-O9: ages are never negative, and reuse makes an object young again.
pub async fn o9_ages_by_the_stores_clock(site: &Site) {
    let store = site.open().await;
    let objects = [noise(90, 100), text(91, 30_000), noise(92, 100)];
    store_all(&*store, &objects).await;
    let hour = Duration::from_secs(3600);
    assert!(listed(&*store).await.0.values().all(|age| *age < hour));
    if site.dir().is_none() {
        return;
    }
    let stamp = |object: &Object, time: SystemTime| {
        let file = site.stored_file(&object.digest()).expect("a file");
        let file = std::fs::File::options().write(true).open(file).expect("opens");
        file.set_modified(time).expect("stamps");
    };
    stamp(&objects[0], SystemTime::now() + 3 * hour);
    stamp(&objects[1], SystemTime::now() - 3 * hour);
    stamp(&objects[2], SystemTime::now() - 3 * hour);
    let (ages, _) = listed(&*store).await;
    assert_eq!(ages[&objects[0].digest()], Duration::ZERO);
    assert!(ages[&objects[1].digest()] > 2 * hour);
    store.put_objects(vec![objects[1].clone()], PutObjects::Check).await.expect("puts");
    let (ages, _) = listed(&*store).await;
    assert!(ages[&objects[1].digest()] < hour && ages[&objects[2].digest()] > 2 * hour);
}

/// CLD-O10: deletion reports per item, and what it says holds at once.
pub async fn o10_delete_reports_per_item(site: &Site) {
    let store = site.open().await;
    let objects: Vec<Object> = (0..20).map(|i| text(100 + i, 9_000)).collect();
    store_all(&*store, &objects).await;
    let absent = noise(101, 9).digest();
    let batch = [objects[0].digest(), absent, objects[1].digest(), objects[0].digest()];
    let out = store.delete_objects(&batch).await.expect("answers");
    assert!(
        matches!(
            out[..],
            [
                DeleteOutcome::Deleted,
                DeleteOutcome::Absent,
                DeleteOutcome::Deleted,
                DeleteOutcome::Absent
            ]
        ),
        "{out:?}"
    );
    for handle in [store.clone(), site.open().await] {
        let questions = [question(&objects[0]), question(&objects[2])];
        assert_eq!(handle.contains(&questions).await.expect("answers"), [false, true]);
        refused(handle.get_object(&objects[1].digest()).await, Kind::NotFound);
        assert_eq!(listed(&*handle).await.0.len(), 18);
    }
    store.maintain().await.expect("maintains");
    assert_eq!(listed(&*store).await.0.len(), 18);
    // What is only staged goes as well, and can be put again.
    let staged = noise(102, 50);
    store.put_objects(vec![staged.clone()], PutObjects::Check).await.expect("puts");
    store.delete_objects(&[staged.digest()]).await.expect("deletes");
    store.flush().await.expect("flushes");
    refused(site.open().await.get_object(&staged.digest()).await, Kind::NotFound);
    store_all(&*store, &[staged.clone(), objects[0].clone()]).await;
    let again = site.open().await.get_object(&objects[0].digest()).await;
    assert_eq!(again.expect("stored again"), objects[0].bytes());
}

/// CLD-O11: compressed or not, the content is the same; a bomb stops at its word.
pub async fn o11_stored_form_is_invisible(site: &Site) {
    let plain = site.open_with(OpenOptions { compression: false, ..Default::default() }).await;
    let packed = site.open().await;
    let objects = [text(110, 60_000), text(111, 60_000), noise(112, 60_000)];
    store_all(&*plain, &objects[..1]).await;
    store_all(&*packed, &objects[1..]).await;
    for handle in [&plain, &packed] {
        for object in &objects {
            let got = handle.get_object(&object.digest()).await.expect("reads");
            assert_eq!(got, object.bytes());
            assert_eq!(handle.contains(&[question(object)]).await.expect("answers"), [true]);
        }
        // Either spelling is there already for the other. In a bucket a put looks only for
        // the one that it would write.
        let out = handle.put_objects(objects.to_vec(), PutObjects::Check).await.expect("puts");
        let right = |o: &PutOutcome| match o {
            PutOutcome::Present => true,
            PutOutcome::Stored { .. } => site.bucket().is_some(),
            _ => false,
        };
        assert!(out.iter().all(right), "{out:?}");
        handle.flush().await.expect("flushes");
    }
    let Some(file) = site.stored_file(&objects[1].digest()) else { return };
    assert_eq!(file.extension().and_then(|e| e.to_str()), Some("zst"));
    let stored = std::fs::read(&file).expect("reads");
    assert!(stored.len() < 8_192);
    // The header promises less than the frame yields, or more than any object may have.
    for raw in [10_000, 1 << 40] {
        let mut bomb = stored.clone();
        let frame = (stored.len() - 24) as u64;
        bomb[..24].copy_from_slice(&Header { raw, frame }.bytes());
        std::fs::write(&file, &bomb).expect("writes");
        refused(packed.get_object(&objects[1].digest()).await, Kind::Corrupt);
    }
}
