//! Records a directory, changes it, and looks at what changed: the library from
//! another program, with any store behind `Arc<dyn Store>`.
//!
//! `cargo run -p backtrail-backends --example put_back [DIRECTORY]`
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "an example program")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture::{Recorder, Request, Settings};
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::workspace::Root;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let workspace = match std::env::args_os().nth(1) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let dir = scratch.path().join("workspace");
            std::fs::create_dir(&dir)?;
            std::fs::write(dir.join("notes.txt"), "first\n")?;
            dir
        }
    };
    let store_dir = scratch.path().join("store");
    let store = open(&store_dir.to_string_lossy(), OpenOptions::default()).await?;
    let ctx = Context {
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    };
    let root = Root::open(&workspace, &ctx.host, false)?;
    let chain = root.chain();
    let settings =
        Settings { cache_dir: Some(scratch.path().join("cache")), ..Settings::default() };
    let recorder = Recorder::open(store.clone(), ctx, root, chain, settings);

    let first = recorder.capture(&Request::default()).await?;
    println!("{}", serde_json::to_string_pretty(&first)?);
    let again = recorder.capture(&Request::default()).await?;
    println!("created again: {} in {} ms", again.created, again.elapsed_ms);
    std::fs::write(workspace.join("notes.txt"), "second\n")?;
    let second = recorder.capture(&Request::default()).await?;
    println!("{:?} {:?} {:?}", second.id, second.delta, second.stored);
    Ok(())
}
