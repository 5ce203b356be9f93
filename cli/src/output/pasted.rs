//! Commands that messages name, made to work when pasted: they say the same workspace
//! and store as the command that printed them.

use std::sync::OnceLock;

use backtrail_core::run::redact_url;
use clap::CommandFactory as _;

use crate::args::{CommandLine, Common};

/// The flags of this command that a printed one needs as well.
#[derive(Debug, Default)]
pub(crate) struct Pasted {
    flags: Vec<(&'static str, String)>,
    /// Known once a text names a command: few do.
    verbs: OnceLock<Vec<String>>,
}

impl Pasted {
    /// Of this command line. What the environment says, a pasted command hears too.
    pub(crate) fn new(common: &Common) -> Self {
        let workspace = common.workspace.as_ref().and_then(|w| w.to_str());
        let named = [("-w", workspace), ("--tenant", common.tenant.as_deref())];
        let urls = [
            ("--store", &common.store, "\"$BACKTRAIL_STORE\""),
            ("--objects", &common.objects, "\"$BACKTRAIL_OBJECTS\""),
        ];
        // A URL with a password is not printed; its variable can stand for it.
        let url = |(flag, url, variable): (&'static str, &Option<String>, &str)| {
            let url = url.as_deref()?;
            let plain = redact_url(url) == url;
            Some((flag, if plain { shell(url) } else { variable.to_owned() }))
        };
        let named = named.into_iter().filter_map(|(flag, value)| Some((flag, shell(value?))));
        let flags: Vec<_> = named.chain(urls.into_iter().filter_map(url)).collect();
        Self { flags, verbs: OnceLock::new() }
    }

    fn is_verb(&self, word: &str) -> bool {
        let all = || {
            let line = CommandLine::command();
            line.get_subcommands().map(|c| c.get_name().to_owned()).collect()
        };
        self.verbs.get_or_init(all).iter().any(|v| v == word)
    }

    /// `text` with the flags behind each `backtrail VERB`, those apart that it has.
    pub(crate) fn text(&self, text: &str) -> String {
        if self.flags.is_empty() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        for (n, part) in text.split("backtrail ").enumerate() {
            if n > 0 {
                out.push_str("backtrail ");
            }
            let end = part.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(part.len());
            let (verb, rest) = part.split_at(end);
            out.push_str(verb);
            if n > 0 && self.is_verb(verb) {
                // The verb `store` is told its URLs by itself.
                let wanted = |flag: &str| verb != "store" || !matches!(flag, "-w" | "--store");
                let missing = self
                    .flags
                    .iter()
                    .filter(|(f, _)| wanted(f) && !rest.contains(&format!(" {f} ")));
                missing.for_each(|(flag, value)| out.push_str(&format!(" {flag} {value}")));
            }
            out.push_str(rest);
        }
        out
    }
}

/// One word for a shell.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-+@:=,%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_command_gets_the_flags_it_lacks() {
        let common = Common {
            workspace: Some("my dir".into()),
            store: Some("/s".into()),
            ..Common::default()
        };
        let pasted = Pasted::new(&common);
        for (text, expected) in [
            ("undo with: backtrail undo", "undo with: backtrail undo -w 'my dir' --store /s"),
            (
                "run `backtrail restore --finish` or wait",
                "run `backtrail restore -w 'my dir' --store /s --finish` or wait",
            ),
            ("backtrail undo -w other", "backtrail undo --store /s -w other"),
            ("upgrade backtrail; reading works", "upgrade backtrail; reading works"),
            ("backtrail keeps its files there", "backtrail keeps its files there"),
        ] {
            assert_eq!(pasted.text(text), expected);
        }
        assert_eq!(Pasted::new(&Common::default()).text("backtrail undo"), "backtrail undo");
        assert_eq!(shell("it's"), r"'it'\''s'");
    }
}
