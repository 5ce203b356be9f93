//! The rule set of a capture as an object: canonical bytes out, hostile bytes in.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::decide::DirRules;
use super::file::{MAX_RULE_FILE, RuleFamily, RuleFile};
use super::matcher::Matcher;
use super::names::NameLists;
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::path::{RelPath, parse_text, text};

const FORMAT_VERSION: u64 = 1;
/// More entries than this in one built-in list are no list of ours.
const MAX_LIST: usize = 10_000;

/// The limits in force, checked after the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A file strictly larger is skipped. In bytes.
    pub max_file_bytes: u64,
    /// More files and symlinks than this are refused.
    pub max_files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_file_bytes: 32 << 20, max_files: 50_000 }
    }
}

/// All that decided which paths a capture took: recorded with it, so that any later
/// version can answer "was this path excluded then".
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Which files held the rules.
    pub family: RuleFamily,
    /// The limits.
    pub limits: Limits,
    /// Directories on other mounts were entered.
    pub cross_filesystems: bool,
    /// The policy switches of a workspace checkpoint, empty when none are set.
    /// `"secrets": "stored"` switches the list of secrets off.
    pub policy: Map<String, Value>,
    lists: Arc<NameLists>,
    files: Vec<Arc<RuleFile>>,
    markers: Vec<RelPath>,
    /// Members written by a later version of the same format.
    unknown: Map<String, Value>,
}

impl RuleSet {
    /// A rule set of this version's lists, without files, markers or policy.
    pub fn new(family: RuleFamily, limits: Limits, cross_filesystems: bool) -> Self {
        Self {
            family,
            limits,
            cross_filesystems,
            policy: Map::new(),
            lists: Arc::default(),
            files: Vec::new(),
            markers: Vec::new(),
            unknown: Map::new(),
        }
    }

    /// Records what the walk found, in any order: the rule files it read, and the
    /// directories whose decision is [`marked`](super::Decision::marked).
    #[must_use]
    pub fn with_found(mut self, files: Vec<Arc<RuleFile>>, markers: Vec<RelPath>) -> Self {
        self.files = files;
        self.markers = markers;
        self.files.sort_by(|a, b| a.path().cmp(b.path()));
        self.markers.sort();
        self
    }

    /// The rule files, in byte order of path.
    pub fn files(&self) -> &[Arc<RuleFile>] {
        &self.files
    }

    /// The directories excluded by what they hold, in byte order.
    pub fn markers(&self) -> &[RelPath] {
        &self.markers
    }

    /// The lists of names in force.
    pub fn lists(&self) -> &Arc<NameLists> {
        &self.lists
    }

    /// The rules at the root, for a walk. `root_file` is the root's own rule file.
    pub fn root(&self, root_file: Option<&Arc<RuleFile>>) -> DirRules {
        let store_secrets = self.policy.get("secrets").is_some_and(|v| v == "stored");
        DirRules::root(Arc::clone(&self.lists), store_secrets, root_file)
    }

    /// An evaluator for any path under this rule set.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.clone())
    }

    /// The canonical JSON bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = self.unknown.clone();
        let files: Vec<Value> = self.files.iter().map(|f| encode_file(f)).collect();
        let markers: Vec<Value> = self.markers.iter().map(|m| m.text().into()).collect();
        let limits = serde_json::json!({
            "max_file_bytes": self.limits.max_file_bytes,
            "max_files": self.limits.max_files,
        });
        for (key, value) in [
            ("format_version", FORMAT_VERSION.into()),
            ("family", self.family.as_str().into()),
            ("files", files.into()),
            ("always", self.lists.always_texts().into()),
            ("secrets", self.lists.secrets.texts().into()),
            ("secret_exceptions", self.lists.secret_exceptions.texts().into()),
            ("defaults", self.lists.defaults.texts().into()),
            ("markers", markers.into()),
            ("limits", limits),
            ("cross_filesystems", self.cross_filesystems.into()),
        ] {
            map.insert(key.to_owned(), value);
        }
        if !self.policy.is_empty() {
            map.insert("policy".to_owned(), self.policy.clone().into());
        }
        crate::store::docs::canonical(&Value::Object(map))
    }

    /// The digest of [`Self::encode`].
    pub fn digest(&self) -> Digest {
        Digest::of(&self.encode())
    }

    /// Reads an object back, trusting nothing. Fails with `Corrupt`, saying what is
    /// wrong, or with `Newer` for a later format.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let value =
            serde_json::from_slice(bytes).map_err(|e| corrupt("it is not JSON").with_source(e))?;
        let Value::Object(mut map) = value else {
            return Err(corrupt("it is no object"));
        };
        match map.remove("format_version").and_then(|v| v.as_u64()) {
            Some(FORMAT_VERSION) => {}
            Some(newer) if newer > FORMAT_VERSION => {
                let message = format!("the rule set has format {newer}, newer than this build");
                return Err(Error::new(Kind::Newer, "store-newer", message));
            }
            _ => return Err(corrupt("it has no format_version")),
        }
        let set = decode_members(map)?;
        // One comparison checks order, repetition and every spelling.
        if set.encode() != bytes {
            return Err(corrupt("it is not in canonical form"));
        }
        Ok(set)
    }
}

fn corrupt(why: &str) -> Error {
    Error::corrupt(format!("the rule set cannot be read: {why}"))
}

fn encode_file(file: &RuleFile) -> Value {
    let lines: Vec<Value> = file.lines().map(|line| text(line).into()).collect();
    serde_json::json!({ "path": file.path(), "lines": lines })
}

fn decode_members(mut map: Map<String, Value>) -> Result<RuleSet> {
    let mut take = |key: &str| map.remove(key).ok_or_else(|| corrupt(&format!("no {key}")));
    let family = match take("family")?.as_str() {
        Some("backtrail") => RuleFamily::Backtrail,
        Some("git") => RuleFamily::Git,
        _ => return Err(corrupt("its family is unknown")),
    };
    let files = array(take("files")?)?;
    let files = files.into_iter().map(|v| decode_file(family, v)).collect::<Result<Vec<_>>>()?;
    if !files.is_sorted_by(|a, b| a.path() < b.path()) {
        return Err(corrupt("its files are out of order"));
    }
    let lists = NameLists::new(
        list(take("always")?)?,
        list(take("secrets")?)?,
        list(take("secret_exceptions")?)?,
        list(take("defaults")?)?,
    );
    let markers = array(take("markers")?)?.into_iter().map(path).collect::<Result<Vec<_>>>()?;
    if !markers.is_sorted_by(|a, b| a < b) {
        return Err(corrupt("its markers are out of order"));
    }
    let limits = take("limits")?;
    let limit = |key| limits.get(key).and_then(Value::as_u64).filter(|n| *n > 0);
    let limit = |key| limit(key).ok_or_else(|| corrupt("a limit is no positive integer"));
    let limits =
        Limits { max_file_bytes: limit("max_file_bytes")?, max_files: limit("max_files")? };
    let cross_filesystems = take("cross_filesystems")?
        .as_bool()
        .ok_or_else(|| corrupt("cross_filesystems is no boolean"))?;
    let policy = match map.remove("policy") {
        None => Map::new(),
        Some(Value::Object(policy)) => policy,
        Some(_) => return Err(corrupt("its policy is no object")),
    };
    let lists = Arc::new(lists);
    Ok(RuleSet { family, limits, cross_filesystems, policy, lists, files, markers, unknown: map })
}

fn array(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(corrupt("a list is no array")),
    }
}

fn string(value: Value) -> Result<String> {
    match value {
        Value::String(s) => Ok(s),
        _ => Err(corrupt("a list entry is no text")),
    }
}

fn list(value: Value) -> Result<Vec<String>> {
    let values = array(value)?;
    if values.len() > MAX_LIST {
        return Err(corrupt("a list of names is too long"));
    }
    values.into_iter().map(string).collect()
}

fn path(value: Value) -> Result<RelPath> {
    let path = RelPath::parse_text(&string(value)?)
        .map_err(|e| corrupt("a path is not valid").with_source(e))?;
    if path.is_root() { Err(corrupt("a path is empty")) } else { Ok(path) }
}

fn decode_file(family: RuleFamily, value: Value) -> Result<Arc<RuleFile>> {
    let Value::Object(mut map) = value else {
        return Err(corrupt("a file is no object"));
    };
    let path = path(map.remove("path").unwrap_or_default())?;
    if path.name() != family.file_name().as_bytes() {
        return Err(corrupt("a file is not of its family"));
    }
    let mut size = 0;
    let mut lines = Vec::new();
    for line in array(map.remove("lines").unwrap_or_default())? {
        let line = parse_text(&string(line)?)
            .map_err(|e| corrupt("a line is not valid").with_source(e))?;
        if line.contains(&b'\n') {
            return Err(corrupt("a line holds a line end"));
        }
        size += line.len() + 1;
        lines.push(line.into());
    }
    if size > MAX_RULE_FILE + 1 {
        return Err(corrupt("a file is too large"));
    }
    // Its bad lines were reported by the capture that read them.
    Ok(Arc::new(RuleFile::from_lines(path, lines).0))
}

#[cfg(test)]
mod tests {
    use super::super::EntryKind;
    use super::*;

    fn sample() -> RuleSet {
        let dir = RelPath::new(*b"a").expect("a path");
        let parse = |dir, bytes: &[u8]| Arc::new(RuleFile::parse(dir, ".gitignore", bytes).0);
        let files = vec![
            parse(&dir, b"# c\n\\#x\r\r\nb\xff\n"),
            parse(&RelPath::root(), b"\xef\xbb\xbf\xef\xbb\xbfx\n[\n\n"),
        ];
        let markers = vec![RelPath::new(*b"target").expect("a path"), dir];
        RuleSet::new(RuleFamily::Git, Limits::default(), true).with_found(files, markers)
    }

    #[test]
    fn a_rule_set_survives_its_own_bytes() {
        let mut set = sample();
        set.policy.insert("secrets".into(), "stored".into());
        let bytes = set.encode();
        let back = RuleSet::decode(&bytes).expect("own bytes decode");
        assert_eq!(back.encode(), bytes);
        let lines = |s: &RuleSet| s.files()[1].lines().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(lines(&back), lines(&set));
        assert_eq!(lines(&back)[1], b"\\#x\r");
        let env = RelPath::new(*b".env").expect("a path");
        assert!(!back.matcher().is_out(&env, EntryKind::File), "secrets are stored");
        assert!(sample().matcher().is_out(&env, EntryKind::File));
    }

    #[test]
    fn members_of_a_later_version_are_kept() {
        let mut value: Value = serde_json::from_slice(&sample().encode()).expect("JSON");
        value["zone"] = 7.into();
        let bytes = crate::store::docs::canonical(&value);
        assert_eq!(RuleSet::decode(&bytes).expect("it decodes").encode(), bytes);
    }

    #[test]
    fn hostile_objects_are_refused() {
        let good: Value = serde_json::from_slice(&sample().encode()).expect("JSON");
        let cases: &[(&str, Value)] = &[
            ("format_version", 0.into()),
            ("family", "hg".into()),
            ("files", serde_json::json!([{"path": "../.gitignore", "lines": []}])),
            ("files", serde_json::json!([{"path": "a/other", "lines": []}])),
            ("files", serde_json::json!([{"path": ".gitignore", "lines": ["a\nb"]}])),
            ("files", serde_json::json!([{"path": ".gitignore", "lines": ["a"], "x": 1}])),
            ("files", serde_json::json!([{"path": ".gitignore"}])),
            ("secrets", serde_json::json!([1])),
            ("markers", serde_json::json!(["b", "a"])),
            ("markers", serde_json::json!(["a", "a"])),
            ("markers", serde_json::json!([""])),
            ("limits", serde_json::json!({"max_file_bytes": 1, "max_files": 0})),
            ("limits", serde_json::json!({"max_file_bytes": 1, "max_files": 1, "x": 1})),
            ("cross_filesystems", 1.into()),
            ("policy", serde_json::json!({})),
        ];
        for (key, value) in cases {
            let mut bad = good.clone();
            bad[*key] = value.clone();
            let error = RuleSet::decode(&crate::store::docs::canonical(&bad)).err();
            assert_eq!(error.map(|e| e.kind()), Some(Kind::Corrupt), "{key}: {value}");
        }
        let mut newer = good.clone();
        newer["format_version"] = 2.into();
        let error = RuleSet::decode(&crate::store::docs::canonical(&newer)).err();
        assert_eq!(error.map(|e| e.kind()), Some(Kind::Newer));
        assert!(RuleSet::decode(&serde_json::to_vec_pretty(&good).expect("JSON")).is_err());
        assert!(RuleSet::decode(b"[]").is_err());
        assert!(RuleSet::decode(b"{\"files\":").is_err());
    }
}
