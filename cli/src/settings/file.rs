//! The configuration file: dotted keys, and nothing that is not a setting.

use std::collections::BTreeMap;
use std::path::Path;

use backtrail_core::error::{Error, Result};

use super::{ROWS, Source, bad};

/// The text of the configuration file; `None` when there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the host, outside every workspace; links to it are followed"
    )]
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(Error::invalid(format!("{} cannot be read", path.display())).with_source(e)),
    }
}

/// Key → text of a configuration file. Unknown keys fail, naming the file.
pub(super) fn parse(path: &Path, text: &str) -> Result<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line =
            e.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
        Error::invalid(format!("{}, line {line}: {}", path.display(), e.message()))
    })?;
    let mut out = BTreeMap::new();
    flatten(path, "", table, &mut out)?;
    for key in out.keys() {
        if !ROWS.iter().any(|r| r.in_file && r.key == key) {
            return Err(Error::invalid(format!("unknown setting {key:?} in {}", path.display()))
                .with_hint("backtrail config"));
        }
    }
    Ok(out)
}

fn flatten(
    path: &Path,
    prefix: &str,
    table: toml::Table,
    out: &mut BTreeMap<String, String>,
) -> Result<()> {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        let text = match value {
            toml::Value::Table(inner) => {
                flatten(path, &key, inner, out)?;
                continue;
            }
            toml::Value::String(s) if s.is_empty() => {
                return Err(bad(&key, &Source::File(path.to_path_buf()), "it is empty"));
            }
            toml::Value::String(s) => s,
            toml::Value::Integer(n) => n.to_string(),
            toml::Value::Boolean(b) => u8::from(b).to_string(),
            other => {
                let why = format!("a {} is no value for a setting", other.type_str());
                return Err(bad(&key, &Source::File(path.to_path_buf()), &why));
            }
        };
        out.insert(key, text);
    }
    Ok(())
}
