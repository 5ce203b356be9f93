//! `store copy`: one store into another.

use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::copy::{Options, Report, copy};
use backtrail_core::error::Result;

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::format;
use crate::settings::Settings;

/// Arguments of `store copy`.
#[derive(clap::Args)]
#[command(
    after_help = "Nothing there is overwritten or deleted; called again it sends what is missing.
Runs that are running are left out. A network store must have been made by store init.

Examples:
  backtrail store copy ~/.local/share/backtrail s3://bucket/team
  backtrail store copy s3://bucket/team mongodb://host/db --dst-objects s3://bucket/objects"
)]
pub(crate) struct Args {
    /// The store to copy from
    #[arg(value_name = "SRC")]
    src: String,
    /// The store to copy into
    #[arg(value_name = "DST")]
    dst: String,
    /// Where the objects of SRC are kept, when not in SRC
    #[arg(long, value_name = "URL")]
    src_objects: Option<String>,
    /// Where the objects of DST are kept, when not in DST
    #[arg(long, value_name = "URL")]
    dst_objects: Option<String>,
    /// Read every object again where it was copied to
    #[arg(long)]
    verify: bool,
    /// Count what is missing, send nothing
    #[arg(long)]
    dry_run: bool,
}

/// Copies.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let settings = app.settings()?;
    let at = |url: &String, objects: &Option<String>| {
        let settings = Settings { store: Some(url.clone()), ..settings.clone() };
        let options = OpenOptions { objects: objects.clone(), ..app.open_options(&settings) };
        Ok::<_, backtrail_core::error::Error>((app.store_url(&settings)?, options))
    };
    let (src, options) = at(&args.src, &args.src_objects)?;
    let from = app.told(&src, open(&src, options)).await?;
    let (dst, options) = at(&args.dst, &args.dst_objects)?;
    let to = app.told(&dst, open(&dst, options)).await?;
    let options = Options { verify: args.verify, dry_run: args.dry_run, wait: settings.wait };
    let report = copy(&*from, &*to, &app.ctx, options).await?;
    let code = match report.problem() {
        Some(e) => {
            app.out.warn(e.message());
            exit::of(&e)
        }
        None if report.skipped.is_empty() => exit::COMPLETE,
        None => exit::PARTIAL,
    };
    match app.out.is_json() {
        true => app.out.json(&report),
        false => print(app, &report, args.dry_run),
    }
    Ok(code)
}

fn print(app: &App, report: &Report, dry_run: bool) {
    let done = if dry_run { "missing" } else { "copied" };
    app.out.line(format!(
        "{done}  {}, {}, {}, {} of logs",
        format::count(report.objects, "object"),
        format::count(report.documents, "document"),
        format::count(report.events, "event"),
        format::bytes(report.log_bytes),
    ));
    for skipped in &report.skipped {
        app.out.warn(&format!("left out: {}: {}", skipped.name, skipped.reason));
    }
    for key in &report.differing {
        app.out.warn(&format!("differs: {key}"));
    }
}
