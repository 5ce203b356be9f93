//! `store init`: marker, indexes, how long records are kept.

use backtrail_backends::mongo::{InitOptions, Keep};
use backtrail_backends::open;
use backtrail_core::error::{Error, Result};
use backtrail_core::store::StoreInfo;
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};
use crate::settings;

/// Arguments of `store init`.
#[derive(clap::Args)]
#[command(
    after_help = "A network store is made by this command alone, so that a mistyped place cannot
begin an empty history. It may be repeated: it makes what is missing and changes how long
records are kept.

Examples:
  backtrail store init s3://bucket/team
  backtrail store init mongodb://host/db --objects s3://bucket/team --events-ttl 30d"
)]
pub(crate) struct Args {
    /// The store; else --store, BACKTRAIL_STORE or the default
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// How long events are kept: a time, or off (MongoDB)
    #[arg(long, value_name = "DUR")]
    events_ttl: Option<String>,
    /// How long run logs are kept: a time, or off (MongoDB)
    #[arg(long, value_name = "DUR")]
    logs_ttl: Option<String>,
}

fn keep(flag: &str, text: Option<&str>) -> Result<Option<Keep>> {
    let bad = |why: String| Error::invalid(format!("bad value for {flag}: {why}"));
    match text {
        None => Ok(None),
        Some("off") => Ok(Some(Keep::Forever)),
        Some(text) => settings::duration(text).map(|d| Some(Keep::For(d))).map_err(bad),
    }
}

/// Makes the store.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let mut settings = app.settings()?;
    if args.url.is_some() {
        settings.store.clone_from(&args.url);
    }
    let url = app.store_url(&settings)?;
    let init = InitOptions {
        events_ttl: keep("--events-ttl", args.events_ttl.as_deref())?,
        logs_ttl: keep("--logs-ttl", args.logs_ttl.as_deref())?,
    };
    let made = app.told(&url, open::init(&url, app.open_options(&settings), init)).await?;
    if app.out.is_json() {
        let shown = |s: &StoreInfo| json!({ "kind": s.kind, "url": s.url, "store_id": s.store_id });
        let stores: Vec<_> = made.iter().map(shown).collect();
        app.out.json(&json!({ "stores": stores, "tenant": settings.tenant }));
        return Ok(exit::COMPLETE);
    }
    for (n, store) in made.iter().enumerate() {
        let half = if n == 0 { "" } else { "  objects" };
        app.out.line(format!("initialised {}  id {}{half}", store.url, store.store_id));
    }
    Ok(exit::COMPLETE)
}
