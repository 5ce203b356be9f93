//! The command line of backtrail: one file a verb, human, JSON and progress output,
//! exit codes. A library only so that tests can build a binary of their own.

mod args;
mod confirm;
mod context;
mod detach;
mod engine;
mod env;
mod exit;
mod external;
mod faults;
mod hook;
mod output;
mod paths;
mod progress;
mod running;
mod settings;
mod signals;
mod tree;
mod unfinished;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::CommandLine;
use crate::context::App;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let raw = env::args();
    let code = match CommandLine::try_parse_from(&raw) {
        Ok(line) => run(line),
        Err(e) => {
            let code = refuse(&e, raw.iter().any(|a| a == "--json"));
            // a hook that is written wrongly stands in no agent's way
            if raw.iter().any(|a| a == "--hook") { exit::COMPLETE } else { code }
        }
    };
    ExitCode::from(code.0)
}

/// Prints help or version, or says what is wrong with the command line.
fn refuse(e: &clap::Error, json: bool) -> exit::Code {
    if !e.use_stderr() {
        return match e.print() {
            Ok(()) => exit::COMPLETE,
            Err(io) if io.kind() == std::io::ErrorKind::BrokenPipe => exit::pipe_closed(),
            Err(_) => exit::FAILED,
        };
    }
    if json {
        let text = e.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        output::usage_failure(message, exit::USAGE);
    } else {
        // Nobody is there to be told when standard error is closed.
        let _ = e.print();
    }
    exit::USAGE
}

fn run(line: CommandLine) -> exit::Code {
    let (mut common, overrides) = (line.common.clone(), line.overrides());
    common.quiet |= line.verb.is_hook();
    let app = App::new(env::Env::read(), common, overrides);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let e = backtrail_core::error::Error::failed("io", "the runtime cannot start")
                .with_source(e);
            app.out.error(&e, exit::FAILED);
            return exit::FAILED;
        }
    };
    let result = runtime.block_on(line.verb.run(&app));
    // A blocking task that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    app.finish(result)
}
