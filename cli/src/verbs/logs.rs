//! `logs`: what the commands of a run printed.

use std::collections::VecDeque;

use backtrail_core::error::Result;
use backtrail_core::run::{Run, RunStore};
use backtrail_core::store::LogPart;
use futures::StreamExt as _;
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};

/// How much of the log is read at once, in bytes.
const PIECE: u64 = 1 << 20;

/// Arguments of `logs`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail logs latest
  backtrail logs latest -f
  backtrail logs latest --tail 20
  backtrail logs latest --node build --iteration 2")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    /// Go on until the run ends
    #[arg(short, long, conflicts_with_all = ["node", "tail"])]
    follow: bool,
    /// The last lines only
    #[arg(long, value_name = "N", conflicts_with = "node")]
    tail: Option<usize>,
    /// From this byte on
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    from: u64,
    /// What this node printed only
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// In this entry into the node only
    #[arg(long, value_name = "N", requires = "node")]
    iteration: Option<u64>,
}

/// Prints.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let (place, run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    if args.follow {
        return follow(app, &runs, &run, args.from).await;
    }
    if let Some(lines) = args.tail {
        return tail(app, &runs, &run, lines).await;
    }
    let stretches = match &args.node {
        None => vec![(args.from, 0)],
        Some(node) => of_node(&runs, &run, node, args.iteration).await?,
    };
    for (from, to) in stretches {
        stretch(app, &runs, &run, from, to).await?;
    }
    Ok(exit::COMPLETE)
}

async fn follow(app: &App, runs: &RunStore, run: &Run, from: u64) -> Result<Code> {
    let mut parts = runs.follow_log(run.id(), from);
    loop {
        let part = tokio::select! {
            part = parts.next() => part,
            () = app.cancelled() => return Err(app.interrupted()),
        };
        let Some(part) = part else { return Ok(exit::COMPLETE) };
        print(app, &part?);
        app.out.flush();
        if app.out.is_broken() {
            return Ok(exit::COMPLETE);
        }
    }
}

/// Prints bytes `from..to`; `to` of 0 is the end.
async fn stretch(app: &App, runs: &RunStore, run: &Run, from: u64, to: u64) -> Result<()> {
    let mut at = from;
    loop {
        let end = if to == 0 { at + PIECE } else { to.min(at + PIECE) };
        let parts = if end > at { runs.read_log(run.id(), at, end).await? } else { Vec::new() };
        let Some(last) = parts.last() else { return Ok(()) };
        let reached = last.end();
        parts.iter().for_each(|part| print(app, part));
        if reached <= at || app.out.is_broken() {
            return Ok(());
        }
        at = reached;
    }
}

fn print(app: &App, part: &LogPart) {
    match (part, app.out.is_json()) {
        (LogPart::Bytes { offset, bytes }, true) => {
            app.out.json(&json!({"offset": offset, "text": String::from_utf8_lossy(bytes)}));
        }
        (LogPart::Hole { offset, len }, true) => {
            app.out.json(&json!({"offset": offset, "missing_bytes": len}));
        }
        (LogPart::Bytes { bytes, .. }, false) => app.out.bytes(bytes),
        (LogPart::Hole { len, .. }, false) => {
            app.out.bytes(format!("\n[backtrail] {len} bytes are missing\n").as_bytes());
        }
    }
}

async fn tail(app: &App, runs: &RunStore, run: &Run, lines: usize) -> Result<Code> {
    let size = runs.log_size(run.id()).await?;
    let mut from = size;
    let mut kept: VecDeque<u8> = VecDeque::new();
    // from the end, until enough line ends are in it
    while from > 0 && kept.iter().rev().skip(1).filter(|b| **b == b'\n').count() < lines {
        let begin = from.saturating_sub(PIECE / 16);
        let mut piece = Vec::new();
        for part in runs.read_log(run.id(), begin, from).await? {
            if let LogPart::Bytes { bytes, .. } = part {
                piece.extend_from_slice(&bytes);
            }
        }
        for byte in piece.into_iter().rev() {
            kept.push_front(byte);
        }
        from = begin;
    }
    let kept: Vec<u8> = kept.into();
    let body = kept.strip_suffix(b"\n").unwrap_or(&kept);
    let ends: Vec<usize> =
        body.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    let start = match lines {
        0 => kept.len(),
        _ => ends.len().checked_sub(lines).and_then(|n| ends.get(n)).copied().unwrap_or(0),
    };
    let offset = size - (kept.len() - start) as u64;
    let bytes = kept[start..].to_vec().into();
    print(app, &LogPart::Bytes { offset, bytes });
    Ok(exit::COMPLETE)
}

/// Where the output of a node lies: from each start to what comes after its end.
async fn of_node(
    runs: &RunStore,
    run: &Run,
    node: &str,
    iteration: Option<u64>,
) -> Result<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    let mut open: Option<u64> = None;
    let mut events = runs.events(run.id(), 0);
    while let Some(event) = events.next().await {
        let event = event?;
        let Some(offset) = event.log_offset() else { continue };
        let starts = event.kind() == "node_started";
        let ours = event.node_id() == Some(node);
        let of_run = event.kind().starts_with("run_");
        if let Some(from) = open.filter(|_| ours || of_run) {
            open = None;
            if offset > from {
                out.push((from, offset));
            }
        }
        let wanted =
            |n: u64| event.data("iteration").and_then(serde_json::Value::as_u64) == Some(n);
        if starts && ours && iteration.is_none_or(wanted) {
            open = Some(offset);
        }
    }
    out.extend(open.map(|from| (from, 0)));
    Ok(out)
}
