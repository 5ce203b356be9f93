//! Which edge is taken, and what taking it does to counters.

use super::state::Phase;
use super::{Failure, Line, Machine};
use crate::run::{EngineEvent, FailureCode};
use crate::workflow::file::definition::{Edge, Kind, On, Template};
use crate::workflow::template;

/// What the edges of a node say.
pub(super) enum Choice {
    /// This one.
    Edge(usize),
    /// None, and why.
    Nothing(Failure),
}

impl Machine {
    fn candidates(&self, node: &str, on: On) -> Vec<usize> {
        let leaving = self.leaving.get(node).map(Vec::as_slice).unwrap_or_default();
        leaving.iter().copied().filter(|n| self.definition.edges[*n].on == on).collect()
    }

    fn is_spent(&self, edge: &Edge) -> bool {
        edge.repeat.as_ref().is_some_and(|r| {
            self.state.loops.get(&r.name.value).is_some_and(|n| *n >= u64::from(r.max))
        })
    }

    /// The first edge whose condition holds, in file order; a spent one is skipped.
    pub(super) fn choose(&self, line: Line, on: On) -> Result<Choice, Failure> {
        let node = &self.lane(line).node;
        let mut spent = None;
        for number in self.candidates(node, on) {
            let edge = &self.definition.edges[number];
            let holds = match &edge.when {
                Some(when) => self.with_scope(line, |s| template::condition(when, s))?,
                None => true,
            };
            match (holds, self.is_spent(edge)) {
                (true, false) => return Ok(Choice::Edge(number)),
                (true, true) => spent = spent.or(edge.repeat.as_ref()),
                _ => {}
            }
        }
        Ok(Choice::Nothing(match spent {
            Some(r) => Failure::new(
                FailureCode::LOOP_EXHAUSTED,
                format!("loop {:?} was taken {} times, which is its max", r.name.value, r.max),
            ),
            None => self.no_edge(node, on),
        }))
    }

    fn no_edge(&self, node: &str, on: On) -> Failure {
        let to: Vec<String> = self
            .candidates(node, on)
            .iter()
            .map(|n| &self.definition.edges[*n])
            .map(|e| match &e.when {
                Some(when) => format!("{} when {:?}", e.route(), when.text),
                None => e.route().to_owned(),
            })
            .collect();
        let to = if to.is_empty() { String::from("there are none") } else { to.join(", ") };
        let text = format!("no edge of node {node:?} can be taken; its edges: {to}");
        Failure::new(FailureCode::NO_OUTGOING_EDGE, text)
    }

    /// A router chooses by its expression, or as every node does.
    pub(super) fn route(&mut self, line: Line, route: Option<&Template>) {
        match self.routed(line, route) {
            Ok(number) => self.router_finished(line, number),
            Err(failure) => self.failed(line, failure),
        }
    }

    fn routed(&self, line: Line, route: Option<&Template>) -> Result<usize, Failure> {
        let Some(route) = route else {
            return match self.choose(line, On::Success)? {
                Choice::Edge(number) => Ok(number),
                Choice::Nothing(failure) => Err(failure),
            };
        };
        let node = &self.lane(line).node;
        let chosen = self.with_scope(line, |s| template::expression(route, s))?;
        let named = self
            .candidates(node, On::Success)
            .into_iter()
            .find(|n| chosen.as_str() == Some(self.definition.edges[*n].route()));
        match named.map(|n| (n, &self.definition.edges[n])) {
            Some((_, edge)) if self.is_spent(edge) => {
                let name = edge.repeat.as_ref().map_or("", |r| &r.name.value);
                let text = format!("loop {name:?} of route {chosen} is spent");
                Err(Failure::new(FailureCode::LOOP_EXHAUSTED, text))
            }
            Some((number, _)) => Ok(number),
            None => {
                let mut failure = self.no_edge(node, On::Success);
                failure.message = format!("route {chosen} names no edge; {}", failure.message);
                Err(failure)
            }
        }
    }

    /// Takes an edge: counts it, resets the loops that are entered from outside, and moves
    /// the line.
    pub(super) fn take(&mut self, line: Line, number: usize) {
        let edge = self.definition.edges[number].clone();
        let mut count = None;
        if let Some(repeat) = &edge.repeat {
            let counter = self.state.loops.entry(repeat.name.value.clone()).or_insert(0);
            *counter += 1;
            count = Some(*counter);
        }
        let event = EngineEvent::EdgeSelected {
            from: edge.from.value.clone(),
            to: edge.to.value.clone(),
            condition: (edge.on == On::Failure).then(|| String::from("failure")),
            negated: None,
            loop_name: edge.repeat.as_ref().map(|r| r.name.value.clone()),
            iteration: count,
            expression: edge.when.as_ref().map(|w| w.text.clone()),
        };
        self.emit_edge(line, event);
        let own = edge.repeat.as_ref().map(|r| r.name.value.as_str());
        self.move_to(line, &edge.from.value, &edge.to.value, own);
    }

    /// From a fan-out to its join.
    pub(super) fn take_join(&mut self, from: &str) {
        let Some(Kind::Parallel(spec)) = self.definition.nodes.get(from).map(|n| &n.kind) else {
            return;
        };
        let to = spec.join.value.clone();
        let event = EngineEvent::EdgeSelected {
            from: from.to_owned(),
            to: to.clone(),
            condition: None,
            negated: None,
            loop_name: None,
            iteration: None,
            expression: None,
        };
        self.emit_edge(Line::Main, event);
        self.move_to(Line::Main, from, &to, None);
    }

    /// Edges concern no node, but a branch where there is one.
    fn emit_edge(&mut self, line: Line, event: EngineEvent) {
        let branch = self.lane(line).branch.clone();
        let emission = super::Emission { event, node: None, branch };
        self.push(super::Action::Emit(Box::new(emission)));
    }

    fn move_to(&mut self, line: Line, from: &str, to: &str, counted: Option<&str>) {
        let entered: Vec<String> = self
            .bodies
            .iter()
            .filter(|(_, body)| body.contains(to) && !body.contains(from))
            .map(|(name, _)| name.clone())
            .filter(|name| counted != Some(name))
            .collect();
        for name in entered {
            self.state.loops.remove(&name);
        }
        self.state.incoming.insert(to.to_owned(), from.to_owned());
        let lane = self.lane_mut(line);
        lane.node = to.to_owned();
        lane.at = None;
        lane.phase = Phase::Ready;
    }
}
