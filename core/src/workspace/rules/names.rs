//! The built-in lists: what is never captured, secrets by name, and directories
//! left out by default. A rule set records them, so that a later version with other
//! lists can still answer for an older snapshot.

use super::EntryKind;
use super::pattern::NameMatcher;
use crate::path::{is_git_name, is_staging_name};

/// Always out, whatever the rules say. The matching of these two is built in.
pub const ALWAYS: &[&str] = &[".git", ".backtrail-stage-<16 hex>"];

/// Names of regular files that usually hold a secret; ASCII case is ignored.
pub const SECRETS: &[&str] = &[
    ".env",
    ".env.*",
    ".env-*",
    ".env_*",
    ".envrc",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.ppk",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".npmrc",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    "credentials.json",
    "secrets.json",
];

/// Names that match [`SECRETS`] and are none: examples of `.env` files.
pub const SECRET_EXCEPTIONS: &[&str] =
    &[".env*.example", ".env*.sample", ".env*.template", ".env*.dist"];

/// Names of directories left out by default.
pub const DEFAULTS: &[&str] = &[
    "node_modules",
    "bower_components",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".eggs",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".turbo",
    ".parcel-cache",
    ".gradle",
    ".terraform",
    ".dart_tool",
    ".stack-work",
    // Databases that half a restore would corrupt.
    ".hg",
    ".svn",
    ".jj",
    ".bzr",
];

/// A file of this name marks its directory as a Python environment.
pub const VENV_MARKER: &str = "pyvenv.cfg";
/// A regular file of this name that begins with [`CACHEDIR_SIGNATURE`] marks its
/// directory as a cache.
pub const CACHEDIR_MARKER: &str = "CACHEDIR.TAG";
/// The 43 bytes a valid `CACHEDIR.TAG` begins with.
pub const CACHEDIR_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The lists of one version, as text and ready to match.
#[derive(Debug)]
pub struct NameLists {
    always: Vec<String>,
    /// What `always` holds beyond the two names whose matching is built in.
    more_always: NameList,
    pub(super) secrets: NameList,
    pub(super) secret_exceptions: NameList,
    pub(super) defaults: NameList,
}

impl Default for NameLists {
    fn default() -> Self {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Self::new(own(ALWAYS), own(SECRETS), own(SECRET_EXCEPTIONS), own(DEFAULTS))
    }
}

impl NameLists {
    /// Makes the lists a rule set recorded.
    pub(super) fn new(
        always: Vec<String>,
        secrets: Vec<String>,
        secret_exceptions: Vec<String>,
        defaults: Vec<String>,
    ) -> Self {
        let more = always.iter().filter(|text| !ALWAYS.contains(&text.as_str())).cloned();
        Self {
            more_always: NameList::new(more.collect(), Case::Ignored),
            always,
            secrets: NameList::new(secrets, Case::Ignored),
            secret_exceptions: NameList::new(secret_exceptions, Case::Ignored),
            defaults: NameList::new(defaults, Case::Kept),
        }
    }

    /// The entry of the list `always` that holds for `name`.
    pub(super) fn always(&self, name: &[u8]) -> Option<Always> {
        if is_git_name(name) {
            return Some(Always::Git);
        }
        if is_staging_name(name) {
            return Some(Always::Staging);
        }
        // A list of another version may hold more; the two above always hold.
        self.more_always.find(name).map(Always::Listed)
    }

    /// The list of names that are always out, as recorded.
    pub(super) fn always_texts(&self) -> &[String] {
        &self.always
    }

    /// The entry that [`Self::always`] found.
    pub(super) fn always_text(&self, always: Always) -> &str {
        match always {
            Always::Git => ALWAYS[0],
            Always::Staging => ALWAYS[1],
            Always::Listed(i) => self.more_always.text(i),
        }
    }

    /// The entry of the list of secrets that makes `name` one.
    pub(super) fn secret(&self, name: &[u8], kind: EntryKind) -> Option<u16> {
        if kind != EntryKind::File {
            return None;
        }
        let found = self.secrets.find(name)?;
        self.secret_exceptions.find(name).is_none().then_some(found)
    }

    /// The entry of the default list that leaves the directory `name` out.
    pub(super) fn default_dir(&self, name: &[u8], kind: EntryKind) -> Option<u16> {
        if kind == EntryKind::Dir { self.defaults.find(name) } else { None }
    }
}

/// Why a name is always out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Always {
    /// `.git` in any ASCII case.
    Git,
    /// A staging directory of restore. The walk reports one that is not ours.
    Staging,
    /// An entry of the recorded list of another version.
    Listed(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Kept,
    Ignored,
}

/// A list of names with `*`, found by their first or last byte.
#[derive(Debug)]
pub(super) struct NameList {
    texts: Vec<String>,
    matchers: Vec<NameMatcher>,
    case: Case,
    by_first: Buckets,
    by_last: Buckets,
    /// Entries with neither a literal start nor a literal end.
    loose: Vec<u16>,
}

type Buckets = Vec<Vec<u16>>;

impl NameList {
    fn new(texts: Vec<String>, case: Case) -> Self {
        let mut out = Self {
            matchers: Vec::with_capacity(texts.len()),
            texts,
            case,
            by_first: vec![Vec::new(); 256],
            by_last: vec![Vec::new(); 256],
            loose: Vec::new(),
        };
        for (i, text) in (0..).zip(&out.texts) {
            let text = if case == Case::Ignored { text.to_ascii_lowercase() } else { text.clone() };
            let matcher = NameMatcher::new(text.as_bytes());
            match &matcher {
                NameMatcher::Literal(s) | NameMatcher::Prefix(s) if !s.is_empty() => {
                    out.by_first[usize::from(s[0])].push(i);
                }
                NameMatcher::Suffix(s) if !s.is_empty() => {
                    out.by_last[usize::from(s[s.len() - 1])].push(i);
                }
                _ => out.loose.push(i),
            }
            out.matchers.push(matcher);
        }
        out
    }

    /// The first entry that matches `name`.
    fn find(&self, name: &[u8]) -> Option<u16> {
        let fold = |b: u8| {
            if self.case == Case::Ignored { b.to_ascii_lowercase() } else { b }
        };
        let (first, last) = (fold(*name.first()?), fold(*name.last()?));
        let by_first = &self.by_first[usize::from(first)];
        let by_last = &self.by_last[usize::from(last)];
        // The common case: no entry begins or ends like this name.
        if by_first.is_empty() && by_last.is_empty() && self.loose.is_empty() {
            return None;
        }
        let hit = |i: &&u16| self.hit(**i, name);
        let found = [by_first, by_last, &self.loose].map(|bucket| bucket.iter().find(hit));
        found.into_iter().flatten().min().copied()
    }

    fn hit(&self, i: u16, name: &[u8]) -> bool {
        let matcher = &self.matchers[usize::from(i)];
        if self.case == Case::Kept {
            return matcher.matches(name);
        }
        match matcher {
            NameMatcher::Literal(s) => name.eq_ignore_ascii_case(s),
            NameMatcher::Prefix(s) => {
                name.get(..s.len()).is_some_and(|head| head.eq_ignore_ascii_case(s))
            }
            NameMatcher::Suffix(s) => {
                let start = name.len().checked_sub(s.len());
                start.is_some_and(|start| name[start..].eq_ignore_ascii_case(s))
            }
            NameMatcher::Any => true,
            NameMatcher::Glob(_) => matcher.matches(&name.to_ascii_lowercase()),
        }
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The text of an entry that [`Self::find`] gave.
    pub(super) fn text(&self, i: u16) -> &str {
        &self.texts[usize::from(i)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_ignore_case_and_spare_examples() {
        let lists = NameLists::default();
        let secret = |name: &str| lists.secret(name.as_bytes(), EntryKind::File).is_some();
        for name in [".env", ".ENV", "prod.env", ".envrc", ".env.sample.local", "id_ed25519.pub"] {
            assert!(secret(name), "{name}");
        }
        for name in [".env.example", ".ENV.Dist", "env", "a.rs", "x.keys", "credentials.jso"] {
            assert!(!secret(name), "{name}");
        }
        assert_eq!(lists.secret(b".env", EntryKind::Dir), None);
        assert_eq!(lists.secret(b".env", EntryKind::Symlink), None);
    }

    #[test]
    fn defaults_are_directories_of_exactly_that_name() {
        let lists = NameLists::default();
        assert!(lists.default_dir(b"node_modules", EntryKind::Dir).is_some());
        assert!(lists.default_dir(b"Node_Modules", EntryKind::Dir).is_none());
        assert!(lists.default_dir(b"node_modules", EntryKind::Symlink).is_none());
    }
}
