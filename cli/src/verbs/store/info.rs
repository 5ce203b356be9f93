//! `store info`: what the store is.

use std::time::Duration;

use backtrail_core::error::Result;
use backtrail_core::store::{
    DocKey, Holder, Listed, ListedObject, LockName, Prefix, Store, docs::get_object,
};
use futures::TryStreamExt as _;
use serde::Serialize;

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::format;

/// Arguments of `store info`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail store info
  backtrail store info --count --json")]
pub(crate) struct Args {
    /// Count objects, bytes, snapshots and runs: a listing of all of the store
    #[arg(long)]
    count: bool,
}

#[derive(Serialize)]
struct Info {
    kind: &'static str,
    url: String,
    store_id: String,
    format_version: Option<u64>,
    tenant: String,
    /// The store's clock less this host's, in milliseconds.
    skew_ms: Option<i64>,
    locks: Vec<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<Count>,
}

#[derive(Serialize)]
struct Held {
    lock: String,
    holder: Holder,
}

#[derive(Default, Serialize)]
struct Count {
    objects: u64,
    stored_bytes: u64,
    snapshots: u64,
    runs: u64,
    foreign: u64,
}

/// Shows it.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let settings = app.settings()?;
    let store = app.store(&settings).await?;
    let marker = match get_object(&*store, &DocKey::Marker).await {
        Ok((marker, _)) => Some(marker),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    let now = app.now().0;
    let skew = store.health().await?.now_ns.map(|theirs| (theirs - now) / 1_000_000);
    let about = store.info();
    let text = |name: &str| Some(marker.as_ref()?.get(name)?.as_str()?.to_owned());
    let info = Info {
        kind: about.kind,
        url: about.url,
        store_id: text("store_id").unwrap_or_default(),
        format_version: marker.as_ref().and_then(|m| m.get("format_version")?.as_u64()),
        tenant: settings.tenant.clone(),
        skew_ms: skew,
        locks: locks(&*store).await?,
        count: if args.count { Some(count(&*store).await?) } else { None },
    };
    match app.out.is_json() {
        true => app.out.json(&info),
        false => print(app, &info),
    }
    Ok(exit::COMPLETE)
}

/// The locks of the whole store that somebody holds Exclusive.
async fn locks(store: &dyn Store) -> Result<Vec<Held>> {
    let mut out = Vec::new();
    for name in [LockName::Objects, LockName::Prune, LockName::PackIndex] {
        if let Some(holder) = store.lock_holder(&name).await? {
            out.push(Held { lock: name.to_string(), holder });
        }
    }
    Ok(out)
}

async fn count(store: &dyn Store) -> Result<Count> {
    let mut out = Count::default();
    let mut objects = store.list_objects();
    while let Some(row) = objects.try_next().await? {
        match row {
            ListedObject::Object { stored, .. } => {
                out.objects += 1;
                out.stored_bytes += stored;
            }
            ListedObject::Foreign(_) => out.foreign += 1,
        }
    }
    let mut documents = store.list(&Prefix::All);
    while let Some(row) = documents.try_next().await? {
        match row {
            Listed::Doc { key: DocKey::Snapshot(..), .. } => out.snapshots += 1,
            Listed::Doc { key: DocKey::Run(_), .. } => out.runs += 1,
            Listed::Doc { .. } => {}
            Listed::Foreign { .. } => out.foreign += 1,
        }
    }
    Ok(out)
}

fn print(app: &App, info: &Info) {
    let out = &app.out;
    out.line(format!("store   {}", info.url));
    out.line(format!("kind    {}", info.kind));
    let made = info.format_version.map(|v| format!("format {v}"));
    let made = made.unwrap_or_else(|| String::from("not made yet: the first write makes it"));
    let id = if info.store_id.is_empty() { "-" } else { &info.store_id };
    out.line(format!("id      {id}  ({made})"));
    out.line(format!("tenant  {}", info.tenant));
    if let Some(skew) = info.skew_ms {
        let apart = Duration::from_millis(skew.unsigned_abs());
        let way = if skew < 0 { "behind" } else { "ahead of" };
        out.line(format!("clock   {:.1} s {way} this host", apart.as_secs_f64()));
    }
    for held in &info.locks {
        let Holder { program, host, pid, since, .. } = &held.holder;
        out.line(format!("lock    {}  {program} on {host}, pid {pid}, since {since}", held.lock));
    }
    if let Some(count) = &info.count {
        out.line(format!(
            "holds   {} of {}, {}, {}",
            format::count(count.objects, "object"),
            format::bytes(count.stored_bytes),
            format::count(count.snapshots, "snapshot"),
            format::count(count.runs, "run"),
        ));
        if count.foreign > 0 {
            out.warn(&format!("{} there are none of ours", format::count(count.foreign, "name")));
        }
    }
}
