//! Which paths count, and the line that decided. No I/O: the walk hands in the
//! bytes of rule files and the names it lists.
//!
//! First that decides wins:
//!
//! 1. Always out, not negatable: `.git`, restore's staging names (and the store and
//!    cache, which the walk knows by inode).
//! 2. The project's rules: `.backtrailignore` files if the root has one, else
//!    `.gitignore` files; git's syntax, except that a later `!` line re-includes
//!    below an excluded directory.
//! 3. Secrets by name. 4. Default excludes and marked directories. Both are freed
//!    only by a `!` line that names them.
//! 5. Everything else is captured.
//!
//! [`DirRules`] answers name by name during a walk; [`RuleSet`] records what was in
//! force; [`RuleSet::matcher`] answers for any path then, and [`Matcher::explain`]
//! tells the whole story. All three run the same evaluation.

mod active;
mod decide;
mod decision;
mod explain;
mod file;
mod matcher;
mod names;
mod obstacle;
mod pattern;
mod set;
mod suggest;
mod wildmatch;

pub use decide::DirRules;
pub use decision::{Class, Decision, EntryKind, LinePos, MarkerKind, Source, Verdict};
pub use explain::{Beaten, Explanation, Outcome};
pub use file::{LineWarning, MAX_RULE_FILE, RuleFamily, RuleFile, RuleFileUse};
pub use matcher::Matcher;
pub use names::{
    ALWAYS, Always, CACHEDIR_MARKER, CACHEDIR_SIGNATURE, DEFAULTS, NameLists, SECRET_EXCEPTIONS,
    SECRETS, VENV_MARKER,
};
pub use set::{Limits, RuleSet};
pub use suggest::ignore_command;
