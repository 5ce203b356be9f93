//! One bad file for each finding.

use backtrail_core::workflow::check::check;
use backtrail_core::workflow::finding::Code;

/// A file, and what is found in it: code, line, column, and a piece of the suggestion.
struct Case {
    text: &'static str,
    found: &'static [(&'static str, usize, usize, &'static str)],
}

const HEAD: &str = "backtrail: 1\nname: t\nentry: a\n";

/// Without the two first lines of [`HEAD`] where a case brings its own.
const WHOLE: &[Case] = &[
    Case { text: "a: [\n", found: &[("W001", 2, 1, "")] },
    Case { text: "a: *x\n", found: &[("W001", 1, 4, "")] },
    Case {
        text: "backtrail: 2\nname: t\nentry: a\nnodes: {a: {kind: done}}\n",
        found: &[("W011", 1, 12, "")],
    },
    Case {
        text: "backtrail: 1\nname: 'a b'\nentry: a\nnodes: {a: {kind: done}}\n",
        found: &[("W009", 2, 7, "letters")],
    },
    Case {
        text: "backtrail: 1\nname: t\nentry: a\nnodes: {a: {kind: done}}\nentry: a\n",
        found: &[("W003", 5, 1, "")],
    },
    Case { text: "name: t\nentry: a\nnodes: {a: {kind: done}}\n", found: &[("W005", 1, 1, "")] },
    Case {
        text: "backtrail: 1\nname: !x t\nentry: a\nnodes: {a: {kind: done}}\n---\nb: 1\n",
        found: &[("W010", 2, 7, ""), ("W010", 5, 1, "")],
    },
    Case {
        text: "backtrail: 1\nname: t\nentry: aa\nnodes: {aaa: {kind: done}}\n",
        found: &[("W012", 3, 8, "\"aaa\"")],
    },
];

/// After [`HEAD`]; the first line is the fourth.
const BODIES: &[Case] = &[
    Case {
        text: "nodes: {a: {kind: done}}\nbuget: {}\nedges: yes\n",
        found: &[("W004", 5, 1, "\"budget\""), ("W006", 6, 8, "")],
    },
    Case {
        text: "budget: {iterations: 0, duration: 5, warn_at: 2}\nnodes: {a: {kind: done}}\n",
        found: &[("W007", 4, 22, ""), ("W008", 4, 35, "500ms"), ("W007", 4, 47, "")],
    },
    Case {
        text: "nodes: {a: {kind: dome}, 'b-c': {kind: done}}\n",
        found: &[("W007", 4, 19, "\"done\""), ("W009", 4, 26, "")],
    },
    Case {
        text: "inputs: {n: {type: int, default: x}, m: {type: strin}}\nnodes: {a: {kind: done}}\n",
        found: &[("W006", 4, 34, ""), ("W007", 4, 48, "\"string\"")],
    },
    Case {
        text: "nodes:\n  a: {kind: run, command: x, timeout: soon}\n  plan: {kind: done}\n\
               edges: [{from: a, to: plna}]\n",
        found: &[("W008", 5, 39, "30s"), ("W012", 7, 23, "\"plan\""), ("W025", 6, 3, "")],
    },
    Case { text: "nodes:\n  a: {kind: run, command: x}\n", found: &[("W013", 5, 3, "edge")] },
    Case {
        text: "nodes:\n  a: {kind: run, command: x}\n  b: {kind: compute, set: {}}\nedges:\n\
               - {from: a, to: b}\n- {from: b, to: a}\n",
        found: &[("W014", 8, 3, "loop")],
    },
    Case {
        text: "nodes:\n  a: {kind: run, command: x}\n  b: {kind: done}\nedges:\n\
               - {from: a, to: b}\n- {from: a, to: b, when: 'true'}\n",
        found: &[("W015", 8, 3, "behind")],
    },
    Case {
        text: "nodes:\n  a: {kind: parallel, branches: [b, c], join: d}\n  \
               b: {kind: run, command: x}\n  c: {kind: run, command: x}\n  d: {kind: done}\n  \
               e: {kind: human, questions: {q: x}}\nedges:\n- {from: b, to: e}\n\
               - {from: e, to: c}\n- {from: c, to: d}\n",
        found: &[("W016", 7, 3, ""), ("W017", 9, 3, "run, router")],
    },
    Case {
        text: "nodes:\n  a: {kind: parallel, branches: [b, c], join: d}\n  \
               b: {kind: run, command: x}\n  c: {kind: compute, set: {}}\n  d: {kind: done}\n\
               edges:\n- {from: b, to: d}\n- {from: c, to: c, loop: l, max: 2}\n",
        found: &[("W024", 5, 37, "")],
    },
    Case {
        text: "nodes:\n  a: {kind: fail, code: TIMEOUT}\n  b: {kind: fail, code: x}\n",
        found: &[("W018", 5, 25, "MY_TIMEOUT"), ("W007", 6, 25, "capital"), ("W025", 6, 3, "")],
    },
    Case {
        text: "secrets: [TOKEN]\nnodes:\n  a: {kind: run, command: x, secrets: [TOKNE]}\n  \
               b: {kind: done}\nedges: [{from: a, to: b}]\n",
        found: &[("W019", 6, 40, "\"TOKEN\"")],
    },
    Case {
        text: "nodes:\n  a:\n    kind: run\n    command: |\n      echo hi\n      echo {{ oops\n  \
               b: {kind: done}\nedges: [{from: a, to: b, when: 'outputs.'}]\n",
        found: &[("W020", 9, 1, ""), ("W020", 11, 32, "")],
    },
    Case {
        text: "vars: {branch: main}\nnodes:\n  a:\n    kind: run\n    command: |\n      \
               echo hi\n      echo {{ vars.brnch }} {{ output }} {{ outputs.aa.x | uper }}\n  \
               b: {kind: done, output: {x: '{{ node.id is evn }}{{ rage(3) }}'}}\n\
               edges: [{from: a, to: b}]\n",
        found: &[
            ("W021", 10, 20, "\"branch\""),
            ("W021", 10, 32, "\"outputs\""),
            ("W012", 10, 53, "\"a\""),
            ("W022", 10, 60, "\"upper\""),
            ("W022", 11, 46, "\"even\""),
            ("W022", 11, 55, "\"range\""),
        ],
    },
    Case {
        text: "nodes:\n  a: {kind: done}\nedges:\n- {from: a, to: a, max: 3}\n\
               - {from: a, to: a, loop: l, max: 3}\n- {from: a, to: a, loop: l, max: 4}\n",
        found: &[
            ("W023", 7, 10, ""),
            ("W014", 7, 3, ""),
            ("W015", 7, 3, ""),
            ("W023", 7, 25, ""),
            ("W023", 8, 10, ""),
            ("W023", 9, 10, ""),
            ("W023", 9, 34, ""),
        ],
    },
    Case {
        text: "nodes:\n  a: {kind: run, command: \"echo '{{ outputs.b.x }}'\"}\n  \
               b: {kind: compute, set: {}}\n  c: {kind: done}\nedges:\n- {from: a, to: b}\n\
               - {from: b, to: c}\n",
        found: &[("W026", 5, 45, ""), ("W027", 5, 34, "raw")],
    },
];

fn found(text: &str) -> Vec<(String, usize, usize, String)> {
    let checked = check("flow.yaml", text.as_bytes());
    let json = checked.report.json();
    let number =
        |v: &serde_json::Value| usize::try_from(v.as_u64().expect("a number")).expect("fits");
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    json.iter()
        .map(|f| {
            (text(&f["code"]), number(&f["line"]), number(&f["column"]), text(&f["suggestion"]))
        })
        .collect()
}

#[test]
fn run_va01_every_finding_has_its_code_place_and_suggestion_all_in_one_run() {
    let bodies = BODIES.iter().map(|c| (format!("{HEAD}{}", c.text), c.found));
    let whole = WHOLE.iter().map(|c| (c.text.to_owned(), c.found));
    let mut seen = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for (text, wanted) in whole.chain(bodies) {
        let found = found(&text);
        seen.extend(found.iter().map(|f| f.0.clone()));
        let mut wanted: Vec<_> = wanted.to_vec();
        wanted.sort_by_key(|w| (w.1, w.2, w.0));
        let same = found.len() == wanted.len()
            && found
                .iter()
                .zip(&wanted)
                .all(|(f, w)| (f.0.as_str(), f.1, f.2) == (w.0, w.1, w.2) && f.3.contains(w.3));
        if !same {
            let human = check("flow.yaml", text.as_bytes()).report.human();
            wrong.push(format!("{text}\nwanted {wanted:?}\nfound {found:?}\n{human}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
    // W002 stands in run_va02
    let all: Vec<&str> = Code::ALL.iter().map(|c| c.as_str()).filter(|c| *c != "W002").collect();
    let missing: Vec<&&str> = all.iter().filter(|c| !seen.contains(**c)).collect();
    assert!(missing.is_empty(), "no file shows {missing:?}");
}

#[test]
fn a_person_sees_the_line_a_caret_and_help() {
    let text = format!(
        "{HEAD}nodes:\n  a: {{kind: run, command: x}}\n  plan: {{kind: done}}\n\
         edges: [{{from: a, to: plna}}]\n"
    );
    let checked = check("flow.yaml", text.as_bytes());
    assert!(checked.definition.is_none());
    assert_eq!(
        checked.report.human(),
        "flow.yaml:6:3: warning[W025]: no path leads to node \"plan\"\n\
         \x20 plan: {kind: done}\n\
         \x20 ^^^^\n\
         flow.yaml:7:23: error[W012]: no node \"plna\"\n\
         edges: [{from: a, to: plna}]\n\
         \x20                     ^^^^\n\
         help: did you mean \"plan\"?\n"
    );
    let json = &checked.report.json()[1];
    assert_eq!(json["end_column"], 27);
    assert_eq!(json["severity"], "error");
}
