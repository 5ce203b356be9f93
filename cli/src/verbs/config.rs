//! `config`: each setting, its value, its source.

use backtrail_core::error::Result;
use backtrail_core::run::redact_url;
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::Paint;
use crate::settings::{ROWS, Settings};

/// Arguments of `config`.
#[derive(clap::Args)]
#[command(after_help = "A flag beats the environment, which beats the configuration file
($XDG_CONFIG_HOME/backtrail/config.toml), which beats the default.

Examples:
  backtrail config
  BACKTRAIL_MAX_FILE=64MiB backtrail config --json")]
pub(crate) struct Args {}

/// Prints the settings.
pub(crate) fn run(app: &App, _: &Args) -> Result<Code> {
    let settings = app.settings()?;
    let mut rows = Vec::new();
    for row in ROWS {
        let (value, source) = &settings.found[row.key];
        let value = match value.is_empty() {
            true => unset(app, &settings, row.key),
            false => shown(row.key, value),
        };
        let source = source.to_string();
        if app.out.is_json() {
            rows.push(json!({
                "key": row.key, "value": value, "source": source, "env": row.env,
                "default": row.default, "help": row.help,
            }));
            continue;
        }
        let value = if value.is_empty() { "-" } else { &value };
        app.out.line(format!(
            "{} = {value}  {}",
            app.out.paint(Paint::Bold, row.key),
            app.out.paint(Paint::Dim, &format!("({source}; {})", row.env)),
        ));
    }
    if app.out.is_json() {
        app.out.json(&json!({ "settings": rows }));
    }
    Ok(exit::COMPLETE)
}

/// What holds where nobody set anything and the default is no constant.
fn unset(app: &App, settings: &Settings, key: &str) -> String {
    let dir = |d: Option<std::path::PathBuf>| d.map(|d| d.display().to_string());
    let found = match key {
        "store" => dir(app.default_store()),
        "cache_dir" => dir(settings.cache_dir.clone()),
        "threads" => Some(settings.threads.to_string()),
        _ => None,
    };
    found.unwrap_or_default()
}

/// A value as it may be shown: never with credentials.
fn shown(key: &str, value: &str) -> String {
    match key {
        "store" | "objects" => redact_url(value),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn credentials_are_not_shown() {
        assert_eq!(
            shown("store", "mongodb://u:p@h/db?authToken=x"),
            "mongodb://***@h/db?authToken=***"
        );
        assert_eq!(shown("store", "/a/b"), "/a/b");
        assert_eq!(shown("store", "s3://bucket/prefix"), "s3://bucket/prefix");
    }
}
