//! The shape of a workflow: which node leads where, cycles, branches, and the bodies of loops.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::file::definition::{Definition, Kind};

/// The nodes of a workflow as numbers, and the ways between them.
#[derive(Clone, Debug)]
pub struct Graph<'d> {
    ids: Vec<&'d str>,
    numbers: HashMap<&'d str, usize>,
    out: Vec<Vec<usize>>,
    back: Vec<Vec<usize>>,
}

impl<'d> Graph<'d> {
    /// The graph of all edges, and of the ways into and out of branches. Edges that name a
    /// node which does not exist are left out.
    pub fn new(definition: &'d Definition) -> Self {
        Self::with(definition, |_| true)
    }

    /// As [`Graph::new`], without the edges that a loop counts.
    pub fn without_loops(definition: &'d Definition) -> Self {
        Self::with(definition, |edge| definition.edges[edge].repeat.is_none())
    }

    fn with(definition: &'d Definition, keep: impl Fn(usize) -> bool) -> Self {
        let ids: Vec<&str> = definition.nodes.keys().map(String::as_str).collect();
        let numbers: HashMap<&str, usize> =
            ids.iter().enumerate().map(|(n, id)| (*id, n)).collect();
        let mut graph = Self {
            out: vec![Vec::new(); ids.len()],
            back: vec![Vec::new(); ids.len()],
            ids,
            numbers,
        };
        for (at, edge) in definition.edges.iter().enumerate() {
            if keep(at) {
                graph.connect(&edge.from.value, &edge.to.value);
            }
        }
        for (id, node) in &definition.nodes {
            if let Kind::Parallel(spec) = &node.kind {
                graph.connect(id, &spec.join.value);
                for branch in &spec.branches {
                    graph.connect(id, &branch.value);
                }
            }
        }
        graph
    }

    fn connect(&mut self, from: &str, to: &str) {
        if let (Some(from), Some(to)) = (self.number(from), self.number(to)) {
            self.out[from].push(to);
            self.back[to].push(from);
        }
    }

    /// The number of a node.
    pub fn number(&self, id: &str) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// The id of a node.
    pub fn id(&self, number: usize) -> &'d str {
        self.ids[number]
    }

    /// Where a node leads.
    pub fn next(&self, number: usize) -> &[usize] {
        &self.out[number]
    }

    /// Which nodes are reached from `starts` without leaving `stop`.
    pub fn reached(&self, starts: &[usize], stop: Option<usize>) -> Vec<bool> {
        flood(&self.out, starts, stop)
    }

    /// Which nodes lead to `starts` without a way through `stop`.
    pub fn leading_to(&self, starts: &[usize], stop: Option<usize>) -> Vec<bool> {
        flood(&self.back, starts, stop)
    }

    /// For each node the number of its component: nodes of one component reach each other.
    pub fn components(&self) -> Vec<usize> {
        let order = finished(&self.out);
        let mut component = vec![usize::MAX; self.ids.len()];
        let mut count = 0;
        for start in order.into_iter().rev() {
            if component[start] != usize::MAX {
                continue;
            }
            let mut stack = vec![start];
            component[start] = count;
            while let Some(node) = stack.pop() {
                for &before in &self.back[node] {
                    if component[before] == usize::MAX {
                        component[before] = count;
                        stack.push(before);
                    }
                }
            }
            count += 1;
        }
        component
    }
}

fn flood(out: &[Vec<usize>], starts: &[usize], stop: Option<usize>) -> Vec<bool> {
    let mut seen = vec![false; out.len()];
    let mut stack = Vec::new();
    for &start in starts {
        if !std::mem::replace(&mut seen[start], true) {
            stack.push(start);
        }
    }
    while let Some(node) = stack.pop() {
        if Some(node) == stop {
            continue;
        }
        for &next in &out[node] {
            if !std::mem::replace(&mut seen[next], true) {
                stack.push(next);
            }
        }
    }
    seen
}

/// The nodes in the order in which a depth-first walk leaves them.
fn finished(out: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; out.len()];
    let mut order = Vec::with_capacity(out.len());
    for start in 0..out.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut stack = vec![(start, 0)];
        while let Some((node, edge)) = stack.last_mut() {
            match out[*node].get(*edge) {
                Some(&next) => {
                    *edge += 1;
                    if !std::mem::replace(&mut seen[next], true) {
                        stack.push((next, 0));
                    }
                }
                None => {
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    order
}

/// The body of each loop: the nodes that its cycles run through. Entering it from outside
/// resets the counter, so that inner loops restart.
///
/// Two bodies are disjoint or one holds the other: bodies that merely overlap are taken as
/// one, since each would reset the other and neither limit would hold.
pub fn loop_bodies(definition: &Definition) -> BTreeMap<String, BTreeSet<String>> {
    let graph = Graph::new(definition);
    let component = graph.components();
    let mut bodies: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for edge in &definition.edges {
        let Some(repeat) = &edge.repeat else { continue };
        let ends = (graph.number(&edge.from.value), graph.number(&edge.to.value));
        let (Some(from), Some(to)) = ends else { continue };
        let body =
            bodies.entry(&repeat.name.value).or_insert_with(|| vec![false; definition.nodes.len()]);
        let leading = graph.leading_to(&[from, to], Some(to));
        for (node, leads) in leading.into_iter().enumerate() {
            body[node] |= leads && component[node] == component[to] || node == to;
        }
    }
    let names: Vec<&str> = bodies.keys().copied().collect();
    let mut bodies: Vec<Vec<bool>> = bodies.into_values().collect();
    nest(&mut bodies);
    let named = |body: Vec<bool>| {
        let held = body.into_iter().enumerate().filter(|(_, held)| *held);
        held.map(|(n, _)| graph.id(n).to_owned()).collect()
    };
    names.into_iter().map(str::to_owned).zip(bodies.into_iter().map(named)).collect()
}

/// Joins bodies until any two are disjoint or nested.
fn nest(bodies: &mut [Vec<bool>]) {
    let mut changed = true;
    while changed {
        changed = false;
        for a in 0..bodies.len() {
            for b in a + 1..bodies.len() {
                let pairs = || bodies[a].iter().zip(&bodies[b]);
                let common = pairs().any(|(x, y)| *x && *y);
                let only_a = pairs().any(|(x, y)| *x && !*y);
                let only_b = pairs().any(|(x, y)| !*x && *y);
                if common && only_a && only_b {
                    let both: Vec<bool> = pairs().map(|(x, y)| *x || *y).collect();
                    bodies[a].clone_from(&both);
                    bodies[b] = both;
                    changed = true;
                }
            }
        }
    }
}

/// The nodes of each branch of a parallel node: start node → its nodes, up to the join.
pub fn branches(
    graph: &Graph<'_>,
    definition: &Definition,
    parallel: &str,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut out = BTreeMap::new();
    let Some(Kind::Parallel(spec)) = definition.nodes.get(parallel).map(|n| &n.kind) else {
        return out;
    };
    let join = graph.number(&spec.join.value);
    for branch in &spec.branches {
        let Some(start) = graph.number(&branch.value) else { continue };
        let reached = graph.reached(&[start], join);
        let held = reached.into_iter().enumerate().filter(|(n, held)| *held && Some(*n) != join);
        out.insert(branch.value.clone(), held.map(|(n, _)| graph.id(n).to_owned()).collect());
    }
    out
}
