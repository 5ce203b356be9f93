//! The keys of a `run` node, which a companion has as well.

use super::definition::{Command, OutputMode, Retry, RunSpec, Template};
use super::fields::{Fields, Reader};
use super::read::{env, nonzero, secrets};
use super::yaml::{Node, Yaml};
use crate::process::Background;
use crate::run::FailureCode;
use crate::workflow::finding::{Code, Finding};

pub(super) const KEYS: [&str; 12] = [
    "command",
    "shell",
    "cwd",
    "env",
    "secrets",
    "stdin",
    "timeout",
    "grace",
    "success_codes",
    "output",
    "background",
    "retry",
];

pub(super) fn run(r: &mut Reader, f: &Fields<'_>) -> Option<RunSpec> {
    let command = r.required(f, "command").and_then(|n| command(r, n));
    let output = [
        ("file", OutputMode::File),
        ("stdout_json", OutputMode::StdoutJson),
        ("stdout_text", OutputMode::StdoutText),
    ];
    let background = [("kill", Background::Kill), ("keep", Background::Keep)];
    let shell = f.get("shell").and_then(|n| r.text(n, "shell"));
    Some(RunSpec {
        command: command?,
        shell: shell.map_or_else(|| String::from("/bin/sh"), |s| s.value),
        cwd: f.get("cwd").and_then(|n| r.template(n, "cwd")),
        env: f.get("env").map(|n| env(r, n)).unwrap_or_default(),
        secrets: f.get("secrets").map(|n| secrets(r, n)).unwrap_or_default(),
        stdin: f.get("stdin").and_then(|n| r.template(n, "stdin")),
        timeout: f.get("timeout").and_then(|n| nonzero(r, n, "timeout")),
        grace: f.get("grace").and_then(|n| r.duration(n, "grace")),
        success_codes: f.get("success_codes").map_or_else(|| vec![0], |n| success_codes(r, n)),
        output: f.get("output").and_then(|n| r.word(n, "output", &output)).unwrap_or_default(),
        background: f
            .get("background")
            .and_then(|n| r.word(n, "background", &background))
            .unwrap_or_default(),
        retry: f.get("retry").and_then(|n| retry(r, n)).unwrap_or_default(),
    })
}

fn command(r: &mut Reader, node: &Node) -> Option<Command> {
    match &node.yaml {
        Yaml::Text(text) if text.trim().is_empty() => {
            r.add(Finding::new(Code::BadValue, node.span, "command must not be empty"));
            None
        }
        Yaml::Text(text) => Some(Command::Shell(Template { text: text.clone(), span: node.span })),
        Yaml::List(items) if items.is_empty() => {
            r.add(Finding::new(Code::BadValue, node.span, "command must not be empty"));
            None
        }
        Yaml::List(items) => {
            let parts = items.iter().map(|n| r.template(n, "an argument"));
            parts.collect::<Option<Vec<_>>>().map(Command::Argv)
        }
        other => {
            let text = format!("command must be text or a list, not {}", other.kind());
            r.add(Finding::new(Code::WrongType, node.span, text));
            None
        }
    }
}

fn success_codes(r: &mut Reader, node: &Node) -> Vec<u8> {
    let items = r.list(node, "success_codes").unwrap_or_default();
    let codes = items.iter().filter_map(|n| {
        let code = r.whole(n, "a success code", 0, 255)?;
        if code == 75 {
            let text = "75 asks a question and cannot mean success";
            r.add(Finding::new(Code::BadValue, n.span, text));
        }
        u8::try_from(code).ok()
    });
    codes.collect()
}

fn retry(r: &mut Reader, node: &Node) -> Option<Retry> {
    let f = r.fields(node, "retry", &["max", "delay", "factor", "max_delay", "on"])?;
    let default = Retry::default();
    let max = f.get("max").and_then(|n| r.whole(n, "retry max", 0, 20));
    let factor = |n: f64| (1.0..=100.0).contains(&n);
    Some(Retry {
        max: max.and_then(|n| u32::try_from(n).ok()).unwrap_or(default.max),
        delay: f.get("delay").and_then(|n| r.duration(n, "retry delay")).unwrap_or(default.delay),
        factor: f
            .get("factor")
            .and_then(|n| r.number(n, "retry factor", "from 1 to 100", factor))
            .unwrap_or(default.factor),
        max_delay: f
            .get("max_delay")
            .and_then(|n| r.duration(n, "retry max_delay"))
            .unwrap_or(default.max_delay),
        on: f.get("on").map_or(default.on, |n| reasons(r, n)),
    })
}

fn reasons(r: &mut Reader, node: &Node) -> Vec<String> {
    let items = r.list(node, "retry on").unwrap_or_default();
    let mut out = Vec::new();
    for item in items {
        let Some(word) = r.text(item, "a reason to retry") else { continue };
        let known = || ["exit", "timeout"].into_iter().chain(FailureCode::RESERVED.iter().copied());
        if known().any(|k| k == word.value) {
            out.push(word.value);
        } else {
            let text = format!("{:?} is no reason to retry", word.value);
            let finding = Finding::new(Code::BadValue, word.span, text);
            r.add(finding.did_you_mean(&word.value, known()));
        }
    }
    out
}
