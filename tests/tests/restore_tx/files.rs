//! File system rules: RES-050 to RES-061.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::world::{At, World};

#[tokio::test]
async fn res_050_a_link_at_a_recorded_path_is_replaced_not_followed() {
    let w = World::new().await;
    let victim = w.ws.parent().expect("parent").join("victim");
    fs::write(&victim, "precious").expect("victim");
    w.write("a", "v1");
    w.write("d/f", "v1");
    for (name, to) in [("self", "."), ("top", "/"), ("dangling", "nowhere")] {
        symlink(to, w.ws.join(name)).expect("link");
    }
    let target = w.capture().await;
    let before = w.picture();
    fs::remove_file(w.ws.join("a")).expect("removed");
    symlink(&victim, w.ws.join("a")).expect("link");
    fs::remove_dir_all(w.ws.join("d")).expect("removed");
    symlink(victim.parent().expect("parent"), w.ws.join("d")).expect("link");
    for name in ["self", "top", "dangling"] {
        fs::remove_file(w.ws.join(name)).expect("removed");
    }
    w.restore(&target).await.expect("restored");
    assert_eq!(w.picture(), before);
    assert_eq!(fs::read_to_string(victim).expect("there"), "precious");
}

#[tokio::test]
async fn res_051_changes_of_kind() {
    let w = World::new().await;
    w.write("x", "a file");
    w.write("y/in", "inside");
    let target = w.capture().await;
    let before = w.picture();
    fs::remove_file(w.ws.join("x")).expect("removed");
    w.write("x/y/z", "deep");
    fs::remove_dir_all(w.ws.join("y")).expect("removed");
    w.write("y", "now a file");
    w.restore(&target).await.expect("restored");
    assert_eq!(w.picture(), before);
}

#[tokio::test]
async fn res_051_a_directory_with_ignored_content_stays() {
    let w = World::new().await;
    w.write(".gitignore", "*.bin\n");
    w.write("x", "a file");
    let target = w.capture().await;
    fs::remove_file(w.ws.join("x")).expect("removed");
    w.write("x/y", "made");
    w.write("x/cache.bin", "ignored");
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(result.exit_code, 3);
    assert_eq!(w.read("x/cache.bin"), "ignored");
    assert_eq!(w.read("x/y"), "made");
    assert!(result.conflicts[0].detail.contains("cache.bin"), "{:?}", result.conflicts);
}

#[tokio::test]
async fn res_052_modes_come_back_exactly() {
    let w = World::new().await;
    let modes =
        [("a", 0o755), ("b", 0o600), ("c", 0o700), ("d", 0o444), ("e", 0o000), ("f", 0o666)];
    for (name, mode) in modes {
        w.write_mode(name, name.as_bytes(), mode);
    }
    let target = w.capture().await;
    let before = w.picture();
    for (name, _) in modes {
        let _ = fs::remove_file(w.ws.join(name));
        w.write_mode(name, b"other", 0o644);
    }
    w.restore(&target).await.expect("restored");
    assert_eq!(w.picture(), before);
}

#[tokio::test]
async fn res_054_hard_links_are_split_once() {
    let w = World::new().await;
    let outside = w.ws.parent().expect("parent").join("outside");
    w.write("a", "v1");
    fs::hard_link(w.ws.join("a"), w.ws.join("b")).expect("link");
    let target = w.capture().await;
    fs::hard_link(w.ws.join("a"), &outside).expect("link");
    fs::write(w.ws.join("a"), "v2").expect("edit");
    let result = w.restore(&target).await.expect("restored");
    assert_eq!((w.read("a"), w.read("b")), ("v1".into(), "v1".into()));
    assert_eq!(fs::read_to_string(outside).expect("there"), "v2");
    assert_eq!(result.counts.hard_links_split, 2);
    assert!(w.restore(&target).await.expect("again").transaction.is_none());
}

#[tokio::test]
async fn res_057_pipes_and_sockets_stay() {
    let w = World::new().await;
    w.write("a", "v1");
    let target = w.capture().await;
    w.write("a", "v2");
    let _socket = std::os::unix::net::UnixListener::bind(w.ws.join("s")).expect("socket");
    let made = std::process::Command::new("mkfifo").arg(w.ws.join("p")).status();
    assert!(made.expect("mkfifo").success());
    w.restore(&target).await.expect("restored");
    assert_eq!(w.read("a"), "v1");
    assert!(fs::symlink_metadata(w.ws.join("p")).is_ok());
    assert!(fs::symlink_metadata(w.ws.join("s")).is_ok());
}

#[tokio::test]
async fn res_058_names_that_are_not_utf8_are_exact() {
    let w = World::new().await;
    let name = std::ffi::OsStr::from_bytes(b"bad\xff.txt");
    fs::write(w.ws.join(name), "v1").expect("written");
    let target = w.capture().await;
    fs::write(w.ws.join(name), "v2 longer").expect("written");
    w.restore(&target).await.expect("restored");
    assert_eq!(fs::read(w.ws.join(name)).expect("there"), b"v1");
}

#[tokio::test]
async fn res_061_long_names_and_deep_paths() {
    let w = World::new().await;
    let deep: Vec<String> = (0..16).map(|_| "d".repeat(240)).collect();
    let mut at = w.ws.clone();
    // Relative steps: the whole is longer than the system takes in one call.
    let mut dir = rustix::fs::open(&at, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
        .expect("open");
    for name in &deep {
        rustix::fs::mkdirat(&dir, name.as_str(), rustix::fs::Mode::from_raw_mode(0o755))
            .expect("mkdir");
        dir = rustix::fs::openat(
            &dir,
            name.as_str(),
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .expect("open");
        at.push(name);
    }
    let create = |text: &str| {
        let flags =
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC;
        let fd = rustix::fs::openat(
            &dir,
            "e".repeat(255),
            flags,
            rustix::fs::Mode::from_raw_mode(0o644),
        )
        .expect("create");
        rustix::io::write(&fd, text.as_bytes()).expect("write");
    };
    create("v1");
    let target = w.capture().await;
    create("v2 longer");
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(result.counts.plan.written, 1);
    let fd = rustix::fs::openat(
        &dir,
        "e".repeat(255),
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )
    .expect("open");
    let mut text = [0; 16];
    let n = rustix::io::read(&fd, &mut text).expect("read");
    assert_eq!(&text[..n], b"v1");
    assert_eq!(fs::metadata(&w.ws).expect("stat").mode() & 0o700, 0o700);
}

/// RES-053 as an ordinary user: as root, this test runs itself again as nobody.
#[tokio::test]
async fn res_053_read_only_files_and_directories() {
    if rustix::process::geteuid().is_root() {
        as_nobody("files::res_053_read_only_files_and_directories");
        return;
    }
    for fault in [None, Some(("restore.step", 2)), Some(("restore.deleted", 1))] {
        let mut w = World::new().await;
        w.write_mode("d/f", b"1", 0o444);
        w.write_mode("top", b"1", 0o444);
        chmod(&w, "d", 0o555);
        let target = w.capture().await;
        let then = w.picture();
        chmod(&w, "d", 0o755);
        for name in ["d/f", "top"] {
            fs::remove_file(w.ws.join(name)).expect("removed");
            w.write_mode(name, b"22", 0o444);
        }
        w.write("d/new", "added");
        chmod(&w, "d", 0o555);
        let now = w.picture();
        if let Some((point, n)) = fault {
            w.faults = At::fail(point, n);
            w.restore(&target).await.expect_err("the fault");
            assert_eq!(w.picture(), now, "{point}");
            w.faults = std::sync::Arc::new(backtrail_core::clock::NoFaults);
        }
        w.restore(&target).await.expect("restored");
        assert_eq!(w.picture(), then);
        chmod(&w, "d", 0o755); // so that the directory can be removed
    }
}

fn chmod(w: &World, path: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(w.ws.join(path), fs::Permissions::from_mode(mode)).expect("mode");
}

fn as_nobody(test: &str) {
    let own = std::env::current_exe().expect("own path");
    let out = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .expect("setpriv");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}\n{out:?}");
}
