//! Which names a template uses, and where, without evaluating it.

use std::collections::HashSet;
use std::ops::Range;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Stmt};
use minijinja::machinery::{Span, parse, parse_expr};
use minijinja::syntax::SyntaxConfig;

/// A step of a path, such as `plan` of `outputs.plan.note`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name.
    pub text: String,
    /// Its bytes in the template.
    pub range: Range<usize>,
}

/// A path that a template looks up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its steps; at least one.
    pub path: Vec<Step>,
}

impl Reference {
    /// `outputs.plan.note`.
    pub fn text(&self) -> String {
        self.path.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join(".")
    }
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `x | name`.
    Filter,
    /// `x is name`.
    Test,
    /// `name()`.
    Function,
    /// `x.name()`, which no value has; also a block that templates may not use.
    Forbidden,
}

/// A filter, test or function that a template calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is.
    pub kind: CallKind,
    /// Its name.
    pub name: String,
    /// The bytes of the expression in the template.
    pub range: Range<usize>,
}

/// What a template uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The paths it looks up.
    pub references: Vec<Reference>,
    /// What it calls.
    pub calls: Vec<Call>,
}

/// A template that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub message: String,
    /// The line inside the template, from 1.
    pub line: usize,
}

impl SyntaxError {
    fn of(error: &minijinja::Error) -> Self {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        Self { message, line: error.line().unwrap_or(1) }
    }
}

/// The syntax of templates: the usual delimiters, and every newline is kept.
pub(super) fn syntax() -> SyntaxConfig {
    let config = SyntaxConfig::builder().keep_trailing_newline(true).build();
    config.unwrap_or_default()
}

/// The names of a template.
pub fn template_names(text: &str) -> Result<Names, SyntaxError> {
    let statement = parse(text, "workflow", syntax()).map_err(|e| SyntaxError::of(&e))?;
    let mut walk = Walk { text, names: Names::default(), scopes: vec![HashSet::new()] };
    walk.statement(&statement);
    Ok(walk.names)
}

/// The names of an expression.
pub fn expression_names(text: &str) -> Result<Names, SyntaxError> {
    let expression = parse_expr(text).map_err(|e| SyntaxError::of(&e))?;
    let mut walk = Walk { text, names: Names::default(), scopes: vec![HashSet::new()] };
    walk.expression(&expression);
    Ok(walk.names)
}

/// The expression of a template that is exactly one `{{ }}`.
pub(super) fn single(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("{{")?.strip_suffix("}}")?;
    let Ok(Stmt::Template(template)) = parse(text, "workflow", syntax()) else { return None };
    let [Stmt::EmitExpr(_)] = template.children.as_slice() else { return None };
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    Some(inner.strip_suffix(['-', '+']).unwrap_or(inner))
}

fn bytes(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}

struct Walk<'a> {
    text: &'a str,
    names: Names,
    scopes: Vec<HashSet<String>>,
}

impl Walk<'_> {
    fn statements(&mut self, statements: &[Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn inside(&mut self, body: impl FnOnce(&mut Self)) {
        self.scopes.push(HashSet::new());
        body(self);
        self.scopes.pop();
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(t) => self.statements(&t.children),
            Stmt::EmitExpr(e) => self.expression(&e.expr),
            Stmt::EmitRaw(_) => {}
            Stmt::ForLoop(l) => self.for_loop(l),
            Stmt::IfCond(c) => {
                self.expression(&c.expr);
                self.inside(|w| w.statements(&c.true_body));
                self.inside(|w| w.statements(&c.false_body));
            }
            Stmt::WithBlock(b) => self.inside(|w| {
                for (target, value) in &b.assignments {
                    w.expression(value);
                    w.declare(target);
                }
                w.statements(&b.body);
            }),
            Stmt::Set(s) => {
                self.expression(&s.expr);
                self.declare(&s.target);
            }
            Stmt::SetBlock(b) => {
                self.filter_of_block(b.filter.as_ref());
                self.inside(|w| w.statements(&b.body));
                self.declare(&b.target);
            }
            Stmt::FilterBlock(b) => {
                self.filter_of_block(Some(&b.filter));
                self.inside(|w| w.statements(&b.body));
            }
            Stmt::AutoEscape(b) => {
                self.call(CallKind::Forbidden, "autoescape", bytes(b.span()));
                self.statements(&b.body);
            }
            Stmt::Do(d) => {
                self.expression(&d.call.expr);
                self.arguments(&d.call.args);
            }
        }
    }

    fn for_loop(&mut self, l: &ForLoop<'_>) {
        self.expression(&l.iter);
        self.inside(|w| {
            w.declare(&l.target);
            w.known("loop");
            if let Some(filter) = &l.filter_expr {
                w.expression(filter);
            }
            w.statements(&l.body);
        });
        self.inside(|w| w.statements(&l.else_body));
    }

    fn filter_of_block(&mut self, filter: Option<&Expr<'_>>) {
        if let Some(filter) = filter {
            self.expression(filter);
        }
    }

    fn known(&mut self, name: &str) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned());
        }
    }

    fn declare(&mut self, target: &Expr<'_>) {
        match target {
            Expr::Var(v) => self.known(v.id),
            Expr::List(l) => l.items.iter().for_each(|t| self.declare(t)),
            Expr::Tuple(t) => t.items.iter().for_each(|t| self.declare(t)),
            _ => {}
        }
    }

    fn call(&mut self, kind: CallKind, name: &str, range: Range<usize>) {
        self.names.calls.push(Call { kind, name: name.to_owned(), range });
    }

    /// The path of a chain of lookups that begins at a name, as far as it is constant.
    fn path(&self, expression: &Expr<'_>) -> Option<Vec<Step>> {
        match expression {
            Expr::Var(v) => Some(vec![Step { text: v.id.to_owned(), range: bytes(v.span()) }]),
            Expr::GetAttr(a) => {
                let mut path = self.path(&a.expr)?;
                let end = bytes(a.span()).end;
                let range = end.saturating_sub(a.name.len())..end;
                path.push(Step { text: a.name.to_owned(), range });
                Some(path)
            }
            Expr::GetItem(i) => {
                let Expr::Const(key) = &i.subscript_expr else { return None };
                let key_text = key.value.as_str()?.to_owned();
                let mut path = self.path(&i.expr)?;
                path.push(Step { text: key_text, range: bytes(key.span()) });
                Some(path)
            }
            _ => None,
        }
    }

    fn reference(&mut self, path: Vec<Step>) {
        let own = self.scopes.iter().any(|s| s.contains(&path[0].text));
        if !own {
            self.names.references.push(Reference { path });
        }
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        if let Some(path) = self.path(expression) {
            return self.reference(path);
        }
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(s) => {
                self.expression(&s.expr);
                [&s.start, &s.stop, &s.step].into_iter().flatten().for_each(|e| self.expression(e));
            }
            Expr::UnaryOp(u) => self.expression(&u.expr),
            Expr::BinOp(b) => {
                self.expression(&b.left);
                self.expression(&b.right);
            }
            Expr::Compare(c) => {
                self.expression(&c.expr);
                c.ops.iter().for_each(|op| self.expression(&op.expr));
            }
            Expr::IfExpr(i) => {
                self.expression(&i.test_expr);
                self.expression(&i.true_expr);
                i.false_expr.iter().for_each(|e| self.expression(e));
            }
            Expr::Filter(f) => {
                f.expr.iter().for_each(|e| self.expression(e));
                self.call(CallKind::Filter, f.name, self.named(f.name, bytes(f.span())));
                self.arguments(&f.args);
            }
            Expr::Test(t) => {
                self.expression(&t.expr);
                self.call(CallKind::Test, t.name, self.named(t.name, bytes(t.span())));
                self.arguments(&t.args);
            }
            Expr::GetAttr(a) => self.expression(&a.expr),
            Expr::GetItem(i) => {
                self.expression(&i.expr);
                self.expression(&i.subscript_expr);
            }
            Expr::Call(c) => {
                self.callee(&c.expr);
                self.arguments(&c.args);
            }
            Expr::List(l) => l.items.iter().for_each(|e| self.expression(e)),
            Expr::Tuple(t) => t.items.iter().for_each(|e| self.expression(e)),
            Expr::Map(m) => {
                m.keys.iter().chain(&m.values).for_each(|e| self.expression(e));
            }
        }
    }

    fn callee(&mut self, callee: &Expr<'_>) {
        match callee {
            Expr::Var(v) => self.call(CallKind::Function, v.id, bytes(v.span())),
            Expr::GetAttr(a) => {
                self.expression(&a.expr);
                let end = bytes(a.span()).end;
                let range = end.saturating_sub(a.name.len())..end;
                self.call(CallKind::Forbidden, a.name, range);
            }
            other => self.expression(other),
        }
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(e)
                | CallArg::Kwarg(_, e)
                | CallArg::PosSplat(e)
                | CallArg::KwargSplat(e) => self.expression(e),
            }
        }
    }

    /// The last place of `name` inside `range`: where a filter or test is named.
    fn named(&self, name: &str, range: Range<usize>) -> Range<usize> {
        let found = self.text.get(range.clone()).and_then(|t| t.rfind(name));
        found.map_or(range.clone(), |at| range.start + at..range.start + at + name.len())
    }
}
