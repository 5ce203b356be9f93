//! What `run --check` finds: code, place, message, suggestion, and how a person reads it.

use serde_json::{Value, json};

/// A place in the source. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The line it begins on.
    pub line: usize,
    /// The column of its first character.
    pub column: usize,
    /// The line it ends on.
    pub end_line: usize,
    /// The column after its last character.
    pub end_column: usize,
    /// The byte it begins at.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// `value` at `span`.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl Span {
    /// The start of the file.
    pub fn start_of_file() -> Self {
        Self { line: 1, column: 1, end_line: 1, end_column: 2, start: 0, end: 0 }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The workflow does not run.
    Error,
    /// The workflow runs, but something is probably not meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $severity:ident,)*) => {
        /// The stable code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// `W001` …
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Whether it stops the workflow.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// No YAML, or no UTF-8.
    Syntax = "W001" Error,
    /// Over a limit: size, depth, aliases, nodes, edges.
    TooLarge = "W002" Error,
    /// A key stands twice.
    DuplicateKey = "W003" Error,
    /// A key that means nothing here.
    UnknownKey = "W004" Error,
    /// A required key is absent.
    MissingKey = "W005" Error,
    /// A value of another type.
    WrongType = "W006" Error,
    /// A value that is not allowed.
    BadValue = "W007" Error,
    /// No duration.
    BadDuration = "W008" Error,
    /// An id or name that breaks the form.
    BadId = "W009" Error,
    /// YAML that workflow files do not use: tags, several documents.
    NotAllowed = "W010" Error,
    /// A version of the format that this build does not know.
    BadVersion = "W011" Error,
    /// A node that does not exist.
    UnknownNode = "W012" Error,
    /// A node that leads nowhere.
    DeadEnd = "W013" Error,
    /// A cycle without a loop edge.
    EndlessCycle = "W014" Error,
    /// An edge after the one that is always taken.
    DefaultNotLast = "W015" Error,
    /// A node in two branches, or in a branch and outside.
    BranchOverlap = "W016" Error,
    /// A kind that a branch may not hold.
    BranchKind = "W017" Error,
    /// A failure code that is reserved.
    ReservedCode = "W018" Error,
    /// A secret that the file does not declare.
    UndeclaredSecret = "W019" Error,
    /// A template or expression that does not parse.
    TemplateSyntax = "W020" Error,
    /// A name that templates do not know.
    UnknownName = "W021" Error,
    /// A filter, test or function that templates do not know.
    UnknownFilter = "W022" Error,
    /// An edge that contradicts another, or can never be taken.
    BadEdge = "W023" Error,
    /// A branch that cannot reach its join.
    NoJoin = "W024" Error,
    /// A node that no path reaches.
    Unreachable = "W025" Warning,
    /// An output read before its node can have run.
    ReadTooEarly = "W026" Warning,
    /// A template inside quotes of the shell.
    InsideQuotes = "W027" Warning,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its code; the severity follows from it.
    pub code: Code,
    /// Where.
    pub span: Span,
    /// What, in one line.
    pub message: String,
    /// What was probably meant, as a sentence for `help:`.
    pub suggestion: Option<String>,
}

impl Finding {
    /// A finding without a suggestion.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self { code, span, message: message.into(), suggestion: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.suggestion = Some(text.into());
        self
    }

    /// Adds `did you mean "…"?` when one of `known` is near `word`.
    #[must_use]
    pub fn did_you_mean<'a>(
        mut self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if let Some(near) = super::nearest::nearest(word, known) {
            self.suggestion = Some(format!("did you mean {near:?}?"));
        }
        self
    }

    /// The column after the finding on its first line, at least one character wide.
    fn end_column(&self, line: &str) -> usize {
        let end = if self.span.end_line == self.span.line {
            self.span.end_column
        } else {
            line.chars().count() + 1
        };
        end.max(self.span.column + 1)
    }

    fn human(&self, file: &str, line: &str) -> String {
        let Span { line: number, column, .. } = self.span;
        let mut out = format!(
            "{}:{number}:{column}: {}[{}]: {}\n",
            visible(file),
            self.code.severity().as_str(),
            self.code.as_str(),
            visible(&self.message)
        );
        if !line.is_empty() {
            // a tab stays a tab, so that the caret stands below what it means
            let skipped = line.chars().take(column - 1);
            let indent: String = skipped.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let width = self.end_column(line).min(line.chars().count() + 1).max(column + 1);
            out.push_str(&format!("{}\n{indent}{}\n", visible(line), "^".repeat(width - column)));
        }
        if let Some(help) = &self.suggestion {
            out.push_str(&format!("help: {}\n", visible(help)));
        }
        out
    }

    fn json(&self, file: &str, line: &str) -> Value {
        json!({
            "file": file,
            "line": self.span.line,
            "column": self.span.column,
            "end_column": self.end_column(line),
            "severity": self.code.severity().as_str(),
            "code": self.code.as_str(),
            "message": self.message,
            "suggestion": self.suggestion,
        })
    }
}

/// One character for one, so that columns stay; nothing reaches the terminal as a command.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// All findings about one file.
#[derive(Clone, Debug)]
pub struct Report {
    file: String,
    text: String,
    findings: Vec<Finding>,
}

impl Report {
    /// The findings about `text`, which was read from `file`, in the order of their places.
    pub fn new(file: impl Into<String>, text: impl Into<String>, findings: Vec<Finding>) -> Self {
        let mut findings = findings;
        findings.sort_by_key(|f| (f.span.line, f.span.column, f.code));
        findings.dedup();
        Self { file: file.into(), text: text.into(), findings }
    }

    /// The findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many are errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|f| f.code.severity() == Severity::Error).count()
    }

    /// Each finding and its line.
    fn with_lines(&self) -> impl Iterator<Item = (&Finding, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        self.findings.iter().map(move |f| {
            (f, lines.get(f.span.line.saturating_sub(1)).copied().unwrap_or_default())
        })
    }

    /// The text for a person: each finding with its line, a caret and help.
    pub fn human(&self) -> String {
        self.with_lines().map(|(f, line)| f.human(&self.file, line)).collect()
    }

    /// One JSON object a finding.
    pub fn json(&self) -> Vec<Value> {
        self.with_lines().map(|(f, line)| f.json(&self.file, line)).collect()
    }
}
