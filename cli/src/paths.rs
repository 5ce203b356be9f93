//! Paths as typed, made relative to the workspace.

use std::path::{Component, Path, PathBuf};

use backtrail_core::error::{Error, Result};
use backtrail_core::path::{RelPath, quoted};
use backtrail_core::workspace::Root;

/// A path of the command line as a path of the workspace. Relative ones start at the
/// current directory when that lies in the workspace, else at the root. `.` and `..`
/// are taken by spelling: no link is followed. Outside the workspace: a usage error.
pub(crate) fn inside(root: &Root, typed: &Path) -> Result<RelPath> {
    let here = crate::env::current_dir().unwrap_or_else(|_| root.path.clone());
    relative(&root.path, &here, typed)
}

/// As [`inside`] for a snapshot without a workspace at hand: relative to its root.
pub(crate) fn in_snapshot(root: Option<&Root>, typed: &Path) -> Result<RelPath> {
    match root {
        Some(root) => inside(root, typed),
        None => relative(Path::new("/"), Path::new("/"), Path::new("/").join(typed).as_path()),
    }
}

fn relative(root: &Path, here: &Path, typed: &Path) -> Result<RelPath> {
    let base = if here.starts_with(root) { here } else { root };
    let outside = || {
        let text = quoted(typed.as_os_str().as_encoded_bytes());
        Error::invalid(format!("path {text} lies outside the workspace {}", root.display()))
            .with_code("outside-workspace")
    };
    let mut whole = PathBuf::new();
    for part in base.join(typed).components() {
        match part {
            Component::ParentDir if !whole.pop() => return Err(outside()),
            Component::ParentDir | Component::CurDir => {}
            other => whole.push(other),
        }
    }
    let rest = whole.strip_prefix(root).map_err(|_| outside())?;
    RelPath::new(rest.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_here_and_stay_inside() {
        let rel = |here: &str, typed: &str| {
            relative(Path::new("/w"), Path::new(here), Path::new(typed))
                .map(|p| p.text().into_owned())
        };
        assert_eq!(rel("/w/sub", "a.txt").expect("in"), "sub/a.txt");
        assert_eq!(rel("/w/sub", "../a.txt").expect("in"), "a.txt");
        assert_eq!(rel("/elsewhere", "a/./b/").expect("in"), "a/b");
        assert_eq!(rel("/w", "/w/x").expect("in"), "x");
        assert_eq!(rel("/w", ".").expect("in"), "");
        for out in ["../x", "/etc", "/", "../../../x"] {
            assert!(rel("/w", out).is_err(), "{out}");
        }
    }
}
