//! What a rewind did, in words or as JSON.

use backtrail_core::rewind::RewindResult;
use backtrail_core::run::Run;

use crate::context::App;
use crate::exit::Code;

/// Prints it; the code to end with. `shown`: the plan was printed already.
pub(crate) fn result(app: &App, run: &Run, done: &RewindResult, shown: bool) -> Code {
    if app.out.is_json() {
        app.out.json(done);
    } else {
        print(app, run, done, shown);
    }
    Code(done.exit_code)
}

fn print(app: &App, run: &Run, done: &RewindResult, shown: bool) {
    let name = &run.record.name;
    let verb = if done.planned { "would rewind" } else { "rewound" };
    let record = if done.record_rewound() { "" } else { "  (files only)" };
    let node = match done.record_rewound() && !done.planned {
        true => &done.node_id,
        false => done.to_node(),
    };
    app.out.summary(format!("{verb} {name} to {node}:{}{record}", done.iteration()));
    if let Some(asked) = done.promoted_from() {
        app.out.notice(format!(
            "{asked} runs beside others; {} is the node around them",
            done.to_node()
        ));
    }
    if let Some(found) = &done.changes {
        let what = if found.workflow { "the workflow itself" } else { "the nodes" };
        app.out.notice(format!("edited: {what} {}; {}", found.nodes.join(", "), found.note));
    }
    if !shown {
        done.record_lines().into_iter().for_each(|line| app.out.summary(line));
    }
    match (&done.files.restore, done.files.skip_reason) {
        (_, Some("scope-none")) => app.out.summary("files: kept"),
        (_, Some(_)) => app.out.summary("files: nothing of the run's to put back"),
        (Some(restore), None) => super::super::restore::report::print(app, restore, shown),
        (None, None) => {}
    }
    let left = done.files.restore.as_ref().map_or(0, |r| r.counts.plan.left_in_place);
    if left > 0 {
        app.out.summary(format!("left in place: {left} (not the run's)"));
    }
    for path in done.files.mixed.iter().take(20) {
        let whose = "was changed while the run was parked and by the run later";
        app.out.warn(&format!("{path} {whose}: both go back, and the bank holds what was there"));
    }
    for path in done.files.uncovered_paths.iter().take(20) {
        app.out.warn(&format!("{path} was not covered at some time, so it is left as it is"));
    }
    if let Some((label, reason)) = done.files.missed_boundaries.iter().next() {
        app.out.warn(&format!(
            "{label} was not captured ({reason}): what the run changed then is left as it is; \
             everything goes back with: backtrail rewind {} --restore-scope full",
            done.run_id
        ));
    }
    if done.record_rewound() && !done.planned {
        app.out.notice(format!("the run is parked; go on with: backtrail resume {}", done.run_id));
    }
}
