//! Nodes: the keys of all, and those of each kind.

use super::definition::{
    AnswerSpec, HumanSpec, Kind, Node, ParallelSpec, Posture, ReviewSpec, Strategy,
};
use super::fields::{Fields, Reader, templated};
use super::yaml::{self, Key, Yaml};
use super::{inputs, run};
use crate::run::FailureCode;
use crate::workflow::finding::{Code, Finding, Spanned};

const COMMON: [&str; 5] = ["kind", "description", "input", "publish", "output_schema"];
const HUMAN: &[&str] = &["questions", "answers"];
const REVIEW: &[&str] = &["instructions", "companion", "posture", "max_turns"];
const PARALLEL: &[&str] = &["branches", "join", "strategy", "max_concurrency", "fail_fast"];

/// Reads a node; `None` when it is too broken to be one.
pub(super) fn node(r: &mut Reader, key: &Key, node: &yaml::Node) -> Option<Node> {
    let what = format!("node {:?}", key.text);
    let entries = r.map(node, &what)?;
    let Some((_, kind)) = entries.iter().find(|(k, _)| k.text == "kind") else {
        r.add(Finding::new(Code::MissingKey, key.span, format!("{what} lacks the key \"kind\"")));
        return None;
    };
    let words: Vec<(&str, &str)> = Kind::WORDS.iter().map(|w| (*w, *w)).collect();
    let kind = r.word(kind, &format!("the kind of {what}"), &words)?;
    let own: &[&str] = match kind {
        "run" => &run::KEYS,
        "human" => HUMAN,
        "router" => &["route"],
        "compute" => &["set"],
        "done" => &["output", "message"],
        "fail" => &["message", "code"],
        "review" => REVIEW,
        _ => PARALLEL,
    };
    let known: Vec<&str> = COMMON.iter().chain(own).copied().collect();
    let f = r.fields(node, &what, &known)?;
    let input = f.get("input").and_then(|n| r.map(n, "input").map(|_| templated(n)));
    let publish = f.get("publish").and_then(|n| r.text(n, "publish"));
    let publish = publish.filter(|p| r.id(&p.value.replace('-', "_"), p.span, "artifact name"));
    let schema = f.get("output_schema").map(|n| inputs::schema(r, n)).unwrap_or_default();
    let description = f.get("description").and_then(|n| r.text(n, "description"));
    let kind = match kind {
        "run" => Kind::Run(Box::new(run::run(r, &f)?)),
        "human" => Kind::Human(human(r, &f)?),
        "router" => Kind::Router(f.get("route").and_then(|n| r.template(n, "route"))),
        "compute" => {
            let set = r.required(&f, "set")?;
            r.map(set, "set")?;
            Kind::Compute(templated(set))
        }
        "done" => Kind::Done {
            output: f.get("output").and_then(|n| r.map(n, "output").map(|_| templated(n))),
            message: f.get("message").and_then(|n| r.template(n, "message")),
        },
        "fail" => Kind::Fail {
            message: f.get("message").and_then(|n| r.template(n, "message")),
            code: f.get("code").and_then(|n| fail_code(r, n)),
        },
        "review" => Kind::Review(Box::new(review(r, &f)?)),
        _ => Kind::Parallel(parallel(r, &f)?),
    };
    Some(Node {
        id: Spanned::new(key.text.clone(), key.span),
        description: description.map(|d| d.value),
        input,
        publish: publish.map(|p| p.value),
        output_schema: schema,
        kind,
    })
}

fn human(r: &mut Reader, f: &Fields<'_>) -> Option<HumanSpec> {
    let questions = r.required(f, "questions")?;
    let entries = r.map(questions, "questions")?;
    if entries.is_empty() {
        r.add(Finding::new(Code::BadValue, questions.span, "questions must not be empty"));
    }
    let questions: Vec<_> = entries.iter().map(|(k, v)| (k.text.clone(), templated(v))).collect();
    let answers = match f.get("answers") {
        Some(node) => inputs::answers(r, node),
        None => questions.iter().map(|(key, _)| (key.clone(), AnswerSpec::text())).collect(),
    };
    Some(HumanSpec { questions, answers })
}

fn fail_code(r: &mut Reader, node: &yaml::Node) -> Option<String> {
    let code = r.text(node, "code")?.value;
    if FailureCode::is_custom(&code) {
        return Some(code);
    }
    if FailureCode::RESERVED.contains(&code.as_str()) {
        let text = format!("failure code {code} is reserved");
        let help = format!("choose one of your own, such as MY_{code}");
        r.add(Finding::new(Code::ReservedCode, node.span, text).help(help));
    } else {
        let text = format!("failure code {code:?} is not valid");
        let form = "3-64 capital letters, digits and _, beginning with a letter";
        r.add(Finding::new(Code::BadValue, node.span, text).help(form));
    }
    None
}

fn review(r: &mut Reader, f: &Fields<'_>) -> Option<ReviewSpec> {
    let instructions = r.required(f, "instructions").and_then(|n| r.template(n, "instructions"));
    let companion = f.get("companion").and_then(|n| {
        let fields = r.fields(n, "a companion", &run::KEYS)?;
        run::run(r, &fields)
    });
    let words = [("human", Posture::Human), ("companion", Posture::Companion)];
    let posture = f.get("posture").and_then(|n| r.word(n, "posture", &words)).unwrap_or_default();
    if let (Posture::Companion, None, Some(node)) = (posture, f.get("companion"), f.get("posture"))
    {
        let text = "posture companion without a companion";
        r.add(Finding::new(Code::BadValue, node.span, text));
    }
    let turns = f.get("max_turns").and_then(|n| r.whole(n, "max_turns", 1, 1_000));
    Some(ReviewSpec {
        instructions: instructions?,
        companion,
        posture,
        max_turns: turns.and_then(|n| u32::try_from(n).ok()).unwrap_or(10),
    })
}

fn parallel(r: &mut Reader, f: &Fields<'_>) -> Option<ParallelSpec> {
    let mut branches: Vec<Spanned<String>> = Vec::new();
    let node = r.required(f, "branches")?;
    for item in r.list(node, "branches")? {
        let Some(branch) = r.text(item, "a branch") else { continue };
        if branches.iter().any(|b| b.value == branch.value) {
            let text = format!("branch {:?} stands twice", branch.value);
            r.add(Finding::new(Code::BranchOverlap, branch.span, text));
        } else {
            branches.push(branch);
        }
    }
    if matches!(&node.yaml, Yaml::List(items) if items.len() < 2) {
        r.add(Finding::new(Code::BadValue, node.span, "branches must name two nodes or more"));
    }
    let words =
        [("all", Strategy::All), ("any", Strategy::Any), ("best_effort", Strategy::BestEffort)];
    let most = f.get("max_concurrency").and_then(|n| r.whole(n, "max_concurrency", 1, 5_000));
    let join = r.required(f, "join").and_then(|n| r.text(n, "join"));
    Some(ParallelSpec {
        join: join?,
        strategy: f.get("strategy").and_then(|n| r.word(n, "strategy", &words)).unwrap_or_default(),
        max_concurrency: most
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(branches.len().max(1)),
        fail_fast: f.get("fail_fast").and_then(|n| r.boolean(n, "fail_fast")).unwrap_or(false),
        branches,
    })
}
