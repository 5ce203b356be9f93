//! A command that leaves a directory out, for messages: it works when pasted.

use std::path::Path;

use super::RuleFamily;
use crate::path::{RelPath, shell_quoted};

/// `echo '/build/' >> <root>/.gitignore`: a rule for `dir` in the file that has a say.
/// Without any rule file so far (`has_rules`), in a file of our own; otherwise in the
/// family in force, because a first `.backtrailignore` would end the say of the others.
pub fn ignore_command(root: &Path, dir: &RelPath, family: RuleFamily, has_rules: bool) -> String {
    let family = if has_rules { family } else { RuleFamily::Backtrail };
    let rule = if dir.is_root() { String::from("*") } else { format!("/{}/", pattern(dir)) };
    let file = root.join(family.file_name()).display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let file = if file.chars().all(plain) { file } else { shell_quoted(&file) };
    format!("echo {} >> {file}", shell_quoted(&rule))
}

/// The path as a pattern that matches it, of characters that every `echo` leaves alone.
fn pattern(dir: &RelPath) -> String {
    let mut out = String::new();
    for part in dir.as_bytes().utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '*' | '?' | '[' => out.extend(['[', c, ']']),
                '\\' => out.push('?'),
                // A wildcard stands for one byte.
                c if c.is_control() => out.extend(std::iter::repeat_n('?', c.len_utf8())),
                c => out.push(c),
            }
        }
        out.extend(part.invalid().iter().map(|_| '?'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_goes_into_the_file_that_has_a_say() {
        let dir = RelPath::new("build/out").expect("a path");
        let line = |family, has| ignore_command(Path::new("/w"), &dir, family, has);
        assert_eq!(line(RuleFamily::Git, false), "echo '/build/out/' >> /w/.backtrailignore");
        assert_eq!(line(RuleFamily::Git, true), "echo '/build/out/' >> /w/.gitignore");
        assert_eq!(line(RuleFamily::Backtrail, true), "echo '/build/out/' >> /w/.backtrailignore");
    }

    #[test]
    fn odd_names_are_quoted_for_rule_and_shell() {
        let dir = RelPath::new(b"a*b/it's \xff\\x".to_vec()).expect("a path");
        let line = ignore_command(Path::new("/my w"), &dir, RuleFamily::Git, true);
        assert_eq!(line, r"echo '/a[*]b/it'\''s ??x/' >> '/my w/.gitignore'");
    }
}
