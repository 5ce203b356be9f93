//! Templates and expressions: syntax, names, filters, quotes, and what is read too early.

use std::collections::HashMap;

use super::Checker;
use super::place::{line_of, place};
use crate::workflow::file::definition::{Command, Kind, Node, RunSpec, Template, Templated};
use crate::workflow::finding::{Code, Finding};
use crate::workflow::template::{
    Call, CallKind, FILTERS, FUNCTIONS, Names, Reference, Scope, TESTS, emits, expression_names,
    template_names,
};

/// What a text is read as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Template,
    Shell,
    Expression,
}

/// A text of the file that is a template, and the node whose names it sees.
struct Use<'a> {
    template: &'a Template,
    read_as: As,
    node: Option<&'a str>,
    /// It is read when the node has ended, not before.
    after: bool,
}

impl<'a> Checker<'a> {
    pub(super) fn templates(&mut self) {
        // per node that is read: which nodes may run after it
        let mut later: HashMap<usize, Vec<bool>> = HashMap::new();
        for used in self.uses() {
            let text = &used.template.text;
            let names = match used.read_as {
                As::Expression => expression_names(text),
                _ => template_names(text),
            };
            match names {
                Ok(names) => self.names(&used, &names, &mut later),
                Err(e) => {
                    let span = line_of(used.template, e.line);
                    self.add(Finding::new(Code::TemplateSyntax, span, e.message));
                }
            }
            if used.read_as == As::Shell {
                self.quotes(used.template);
            }
        }
    }

    fn uses(&self) -> Vec<Use<'a>> {
        let definition = self.definition;
        let mut out = Vec::new();
        let text = |template| Use { template, read_as: As::Template, node: None, after: false };
        out.extend(definition.env.values().map(text));
        for node in definition.nodes.values() {
            uses_of_node(node, &mut out);
        }
        for edge in &definition.edges {
            out.extend(edge.when.iter().map(|template| Use {
                template,
                read_as: As::Expression,
                node: Some(&edge.from.value),
                after: true,
            }));
        }
        out
    }

    fn names(&mut self, used: &Use<'a>, names: &Names, later: &mut HashMap<usize, Vec<bool>>) {
        for reference in &names.references {
            if !self.reference(used, reference) {
                continue;
            }
            let node = reference.path.get(1).filter(|_| reference.path[0].text == "outputs");
            if let (Some(read), Some(reader)) = (node, used.node) {
                self.too_early(used, reader, read, later);
            }
        }
        for call in &names.calls {
            self.call(used.template, call);
        }
    }

    /// Reports a path that cannot lead anywhere; true when it may.
    fn reference(&mut self, used: &Use<'a>, reference: &Reference) -> bool {
        let root = &reference.path[0];
        if !Scope::ROOTS.contains(&root.text.as_str()) {
            let text = format!("no name {:?} in templates", root.text);
            let span = place(self.text, used.template, &root.range);
            let finding = Finding::new(Code::UnknownName, span, text);
            self.add(finding.did_you_mean(&root.text, Scope::ROOTS));
            return false;
        }
        let Some(step) = reference.path.get(1) else { return true };
        let Some((known, what)) = self.known.below(&root.text) else { return true };
        if known.contains(step.text.as_str()) {
            return true;
        }
        let unknown_node = what == "node" && !self.exists(&step.text);
        let (code, text) = match root.text.as_str() {
            "artifacts" if self.unread.contains(&step.text) => return true,
            "artifacts" if self.exists(&step.text) => {
                (Code::UnknownName, format!("node {:?} publishes no artifact", step.text))
            }
            _ if unknown_node => (Code::UnknownNode, format!("no node {:?}", step.text)),
            _ => (Code::UnknownName, format!("no {what} {:?}", step.text)),
        };
        let span = place(self.text, used.template, &step.range);
        let finding = Finding::new(code, span, text);
        let finding = finding.did_you_mean(&step.text, known.iter().copied());
        self.add(finding);
        false
    }

    fn too_early(
        &mut self,
        used: &Use<'a>,
        reader: &'a str,
        read: &crate::workflow::template::Step,
        later: &mut HashMap<usize, Vec<bool>>,
    ) {
        let numbers = (self.graph.number(reader), self.graph.number(&read.text));
        let (Some(reader_number), Some(read_number)) = numbers else { return };
        if !self.unread.is_empty() || (used.after && reader_number == read_number) {
            return;
        }
        let graph = &self.graph;
        let after = later
            .entry(read_number)
            .or_insert_with(|| graph.reached(graph.next(read_number), None));
        if !after[reader_number] {
            let text = format!("node {:?} cannot have run before this is read", read.text);
            let span = place(self.text, used.template, &read.range);
            self.add(Finding::new(Code::ReadTooEarly, span, text));
        }
    }

    fn call(&mut self, template: &Template, call: &Call) {
        let (known, what): (&[&str], _) = match call.kind {
            CallKind::Filter => (FILTERS, "filter"),
            CallKind::Test => (TESTS, "test"),
            CallKind::Function => (FUNCTIONS, "function"),
            CallKind::Forbidden => (&[], "method or block"),
        };
        if !known.contains(&call.name.as_str()) {
            let text = format!("no {what} {:?} in templates", call.name);
            let span = place(self.text, template, &call.range);
            let finding = Finding::new(Code::UnknownFilter, span, text);
            self.add(finding.did_you_mean(&call.name, known.iter().copied()));
        }
    }

    fn quotes(&mut self, template: &Template) {
        for emit in emits(&template.text).into_iter().filter(|e| e.quoted && !e.raw) {
            let span = place(self.text, template, &emit.range);
            let text = "the value is quoted already: the quotes around it end up in it";
            let finding = Finding::new(Code::InsideQuotes, span, text);
            self.add(finding.help("take the quotes away, or append | raw"));
        }
    }
}

fn uses_of_node<'a>(node: &'a Node, out: &mut Vec<Use<'a>>) {
    let id = Some(node.id.value.as_str());
    let text = |template| Use { template, read_as: As::Template, node: id, after: false };
    let value = |templated: &'a Templated, out: &mut Vec<Use<'a>>| {
        let mut texts = Vec::new();
        texts_of(templated, &mut texts);
        out.extend(texts.into_iter().map(text));
    };
    node.input.iter().for_each(|v| value(v, out));
    match &node.kind {
        Kind::Run(spec) => uses_of_run(spec, id, out),
        Kind::Human(spec) => spec.questions.iter().for_each(|(_, v)| value(v, out)),
        Kind::Router(route) => out.extend(route.iter().map(|template| Use {
            template,
            read_as: As::Expression,
            node: id,
            after: false,
        })),
        Kind::Compute(set) => value(set, out),
        Kind::Done { output, message } => {
            output.iter().for_each(|v| value(v, out));
            out.extend(message.iter().map(text));
        }
        Kind::Fail { message, .. } => out.extend(message.iter().map(text)),
        Kind::Review(spec) => {
            out.push(text(&spec.instructions));
            spec.companion.iter().for_each(|s| uses_of_run(s, id, out));
        }
        Kind::Parallel(_) => {}
    }
}

fn uses_of_run<'a>(spec: &'a RunSpec, node: Option<&'a str>, out: &mut Vec<Use<'a>>) {
    let plain = |template| Use { template, read_as: As::Template, node, after: false };
    match &spec.command {
        Command::Shell(template) => {
            out.push(Use { template, read_as: As::Shell, node, after: false });
        }
        Command::Argv(parts) => out.extend(parts.iter().map(plain)),
    }
    out.extend(spec.cwd.iter().chain(&spec.stdin).chain(spec.env.values()).map(plain));
}

fn texts_of<'a>(value: &'a Templated, out: &mut Vec<&'a Template>) {
    match value {
        Templated::Constant(_) => {}
        Templated::Text(template) => out.push(template),
        Templated::List(items) => items.iter().for_each(|item| texts_of(item, out)),
        Templated::Map(entries) => entries.iter().for_each(|(_, item)| texts_of(item, out)),
    }
}
