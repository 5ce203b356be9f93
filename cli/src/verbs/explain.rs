//! `explain`: what a capture would do with a path, and which rule decided.

use std::path::PathBuf;

use backtrail_core::error::Result;
use backtrail_core::observe;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::rules::{Explanation, Outcome};
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// Arguments of `explain`.
#[derive(clap::Args)]
#[command(after_help = "A trailing / asks about a directory, which need not exist.

Examples:
  backtrail explain .env node_modules/
  backtrail explain build/out.js --json")]
pub(crate) struct Args {
    /// What to ask about
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Explains.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let place = app.place(true).await?;
    let root = place.root()?.clone();
    let settings = app.observe_settings(&place, false).await?;
    let mut asked = Vec::new();
    for typed in &args.paths {
        let dir = typed.as_os_str().as_encoded_bytes().ends_with(b"/");
        asked.push((crate::paths::inside(&root, typed)?, dir));
    }
    let rows: Vec<Explanation> = blocking(move || {
        asked.iter().map(|(path, dir)| observe::explain(&root, &settings, path, *dir)).collect()
    })
    .await?;
    if app.out.is_json() {
        app.out.json(&json!({ "workspace": place.workspace(), "paths": rows }));
    } else {
        rows.iter().for_each(|row| print(app, row));
    }
    Ok(exit::COMPLETE)
}

fn print(app: &App, e: &Explanation) {
    let (word, paint) = match e.decision {
        Outcome::Stored => ("stored", Paint::Good),
        Outcome::Excluded => ("excluded", Paint::Warn),
        Outcome::Skipped => ("skipped", Paint::Warn),
    };
    let mut text = format!("{}: {}", e.path, app.out.paint(paint, word));
    let why = match (&e.file, e.line, &e.pattern) {
        (Some(file), Some(line), Some(pattern)) => format!("{file}:{line}: {pattern}"),
        (_, _, Some(pattern)) => format!("{} {pattern}", e.source),
        _ => e.reason.to_owned(),
    };
    text.push_str(&format!(" ({why}"));
    if e.decided_at != e.path && !e.decided_at.is_root() {
        text.push_str(&format!(", decided at {}", e.decided_at));
    }
    if let (Some(size), Some(limit)) = (e.size, e.limit) {
        text.push_str(&format!(": {} is over {}", format::bytes(size), format::bytes(limit)));
    }
    app.out.line(text + ")");
    for lost in &e.beaten {
        let place = match (&lost.file, lost.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => lost.source.to_owned(),
        };
        let text = format!("  beaten: {place}: {} ({}, at {})", lost.pattern, lost.why, lost.at);
        app.out.line(app.out.paint(Paint::Dim, &text));
    }
}
