//! Templates: quoting, strictness, bounds.

use std::process::Command;
use std::time::{Duration, Instant};

use backtrail_core::process::Command as Program;
use backtrail_core::workflow::machine::Start;
use serde_json::{Value, json};

use crate::world::{World, object, ok, workflow};

/// The program that one command becomes with these variables.
fn program(command: &str, vars: Value) -> Result<Program, String> {
    let names: Vec<String> = object(vars.clone()).keys().map(|k| format!("{k}: x")).collect();
    let flow = workflow(&format!(
        "entry: a\nvars: {{{}}}\nnodes:\n  a: {{kind: run, command: {command}}}\n  \
         end: {{kind: done}}\nedges: [{{from: a, to: end}}]\n",
        names.join(", ")
    ));
    let world = World::begin(&flow, Start { vars: object(vars), ..Start::default() });
    match world.started.first() {
        Some(execution) => Ok(execution.command.clone()),
        None => {
            let failure = world.failure.expect("it failed");
            assert_eq!(failure.code, "EXPRESSION_FAILED");
            Err(failure.message)
        }
    }
}

/// What a shell prints for a command text.
fn printed(command: &str, vars: Value) -> String {
    let Ok(Program::Shell { shell, text }) = program(command, vars) else { panic!("{command}") };
    let out = Command::new(shell).arg("-c").arg(text).output().expect("a shell");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn run_wf04_values_are_data_to_a_shell_and_one_word_of_an_argv() {
    let hostile = "$(touch x) `id` 'q' \"d\" \\ ; & | \n second {{ vars.v }} *";
    for command in [
        "\"printf %s {{ vars.v }}\"",
        "\"printf %s {{ vars.v ~ '' }}\"",
        "\"printf %s {{ [vars.v] | join }}\"",
        "\"printf %s {{ vars.v | replace('zz', '') }}\"",
        "\"printf %s {{ vars.v | raw | trim }}\"",
        "\"printf %s {{ [vars.v] | join('' | raw) }}\"",
        "\"{% set w = vars.v %}printf %s {{ w }}\"",
    ] {
        assert_eq!(printed(command, json!({ "v": hostile })), hostile, "{command}");
    }
    assert_eq!(printed("\"printf '%s|' {{ vars.v | raw }}\"", json!({"v": "a b"})), "a|b|");
    assert_eq!(
        printed("\"printf '%s|' {{ vars.v }} {{ vars.n }}\"", json!({"v": ["a b"], "n": 3})),
        "[\"a b\"]|3|"
    );
    assert_eq!(printed("\"printf %s '{% raw %}{{ x }}{% endraw %}'\"", json!({})), "{{ x }}");
    assert_eq!(printed("\"printf '%s|' {{ 'a' if vars.v }} b\"", json!({"v": false})), "b|");
    let argv = program("['printf', '{{ vars.v }}', '-{{ vars.w }}-']", json!({"v": "a b", "w": 1}));
    assert_eq!(argv, Ok(Program::Argv(vec!["printf".into(), "a b".into(), "-1-".into()])));
    // what is too long for an argv goes by file, whole
    let flow = workflow(
        "entry: a\nvars: {v: x}\nnodes:\n  a: {kind: run, command: 'cat', input: {v: '{{ vars.v }}'}}\n  \
         end: {kind: done}\nedges: [{from: a, to: end}]\n",
    );
    let long = "x".repeat(200 << 10);
    let vars = object(json!({ "v": long }));
    let world = World::begin(&flow, Start { vars, ..Start::default() });
    assert_eq!(world.started[0].input["input"]["v"], long);
}

/// A workflow of one compute node and one edge.
fn computed(set: &str, when: &str) -> World {
    let flow = workflow(&format!(
        "entry: a\nvars: {{n: 3, l: [1, a], z: null, t: 'false', m: {{k: 1}}}}\nnodes:\n  \
         a:\n    kind: compute\n    set: {set}\n  end: {{kind: done}}\n\
         edges: [{{from: a, to: end, when: {when}}}]\n"
    ));
    World::run(&flow, &mut |_| Some(ok(json!({}))))
}

#[test]
fn run_wf06_templates_are_strict_bounded_and_keep_the_type_of_a_single_expression() {
    let good = computed(
        "{n: '{{ vars.n + 1 }}', l: '{{ vars.l }}', z: '{{ vars.z }}', s: ' {{ vars.n }}', c: 7, \
         d: \"{{ vars.m.x | default('none') }}\", q: '{{ vars.m.x is defined }}', \
         j: '{{ vars.m }}{{ vars.z }}', h: \"{{ '<&>' }}!\"}",
        "'true'",
    );
    assert_eq!(
        good.checkpoint.outputs["a"],
        json!({"n": 4, "l": [1, "a"], "z": null, "s": " 3", "c": 7, "d": "none", "q": false,
            "j": "{\"k\":1}null", "h": "<&>!"})
    );
    for (set, when, said) in [
        (
            "{x: '{{ vars.m.kk }}'}",
            "'true'",
            "line 8: \"vars.m.kk\": \"kk\" is not known here; did you mean \"k\"?",
        ),
        ("{x: 'a {{ vars.m.kk }}'}", "'true'", "did you mean \"k\"?"),
        ("{}", "vars.t", "true or false, not \"false\""),
        ("{}", "vars.n", "true or false, not 3"),
        ("{}", "vars.m.y", "\"y\" is not known here"),
        (
            "{x: '{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}'}",
            "'true'",
            "too long",
        ),
        (
            "{x: '{% set x = namespace(v=1) %}{% for i in range(9999) %}{% set x.v = [x.v, x.v] | string %}{% endfor %}'}",
            "'true'",
            "too long",
        ),
        ("{x: \"{{ 'x' * 999999999 }}\"}", "'true'", "too l"),
        ("{x: \"{{ 'x' * 1100000 }}\"}", "'true'", "larger"),
        ("{x: '{{ vars.n / 0 }}'}", "'true'", "calculate 3 / 0"),
    ] {
        let started = Instant::now();
        let world = computed(set, when);
        assert!(started.elapsed() < Duration::from_secs(5), "{set}: {:?}", started.elapsed());
        assert_eq!(world.code(), "EXPRESSION_FAILED", "{set} {when}");
        let message = world.failure.expect("a failure").message;
        assert!(message.starts_with("flow.yaml: line ") && message.contains(said), "{message}");
    }
    // a value that only a run can know to be missing
    assert!(
        program("\"echo {{ vars.v.nam }}\"", json!({"v": {"name": 1}}))
            .is_err_and(|m| m.contains("did you mean \"name\"?"))
    );
}
