//! `events`: the events of a run, as they are stored.

use std::collections::VecDeque;

use backtrail_core::error::Result;
use backtrail_core::run::Event;
use futures::StreamExt as _;
use serde_json::Value;

use crate::context::App;
use crate::exit::{self, Code};
use crate::running::printable;

/// Arguments of `events`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail events latest
  backtrail events latest -f --json
  backtrail events latest --node build --type node_finished")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    /// Go on until the run ends
    #[arg(short, long, conflicts_with = "tail")]
    follow: bool,
    /// The last ones only
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// From this number on
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    /// About this node only
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// In this entry into the node only
    #[arg(long, value_name = "N", requires = "node")]
    iteration: Option<u64>,
    /// Of this type only
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
}

impl Args {
    /// Whether not every event is wanted.
    fn selects(&self) -> bool {
        self.node.is_some() || self.kind.is_some()
    }

    fn wants(&self, event: &Event) -> bool {
        let iteration = |n: u64| match event.data("iteration").and_then(Value::as_u64) {
            Some(of) => of == n,
            None => true,
        };
        self.kind.as_deref().is_none_or(|kind| event.kind() == kind)
            && self.node.as_deref().is_none_or(|node| event.node_id() == Some(node))
            && self.iteration.is_none_or(iteration)
    }
}

/// Prints.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let (place, run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    if let (Some(n), false) = (args.tail, args.selects()) {
        let (last, failed) = runs.last_events(run.id(), args.from, n).await?;
        last.iter().for_each(|event| print(app, event));
        return failed.map_or(Ok(exit::COMPLETE), Err);
    }
    let mut events = match args.follow {
        true => runs.follow_events(run.id(), args.from),
        false => runs.events(run.id(), args.from),
    };
    let mut last: VecDeque<Event> = VecDeque::new();
    let failed = loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = app.cancelled() => return Err(app.interrupted()),
        };
        let event = match event {
            None => break None,
            Some(Err(e)) => break Some(e),
            Some(Ok(event)) => event,
        };
        if !args.wants(&event) {
            continue;
        }
        match args.tail {
            Some(n) => {
                last.push_back(event);
                if last.len() > n {
                    last.pop_front();
                }
            }
            None => {
                print(app, &event);
                if args.follow {
                    app.out.flush();
                }
            }
        }
        if app.out.is_broken() {
            return Ok(exit::COMPLETE);
        }
    };
    last.iter().for_each(|event| print(app, event));
    failed.map_or(Ok(exit::COMPLETE), Err)
}

fn print(app: &App, event: &Event) {
    if app.out.is_json() {
        let mut line = event.body.to_vec();
        line.push(b'\n');
        return app.out.bytes(&line);
    }
    let data = event.fields().get("data").map(Value::to_string).unwrap_or_default();
    let node = event.node_id().unwrap_or("-");
    let line = format!("{:>5}  {}  {}  {node}  {data}", event.seq, event.timestamp(), event.kind());
    app.out.line(printable(&line));
}
