//! Adds text hunks to changes, and writes them as a unified patch.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::changes::{Change, Status};
use super::hunks::{Hunk, LineKind, MAX_TEXT_BYTES, TextDiff, text_diff};
use super::state::State;
use crate::error::Result;
use crate::object::content;
use crate::path::{RelPath, quoted};
use crate::snapshot::tree::{Body, Ref};
use crate::store::Store;

/// Contents read at once.
const READERS: usize = 8;

/// Gives the bytes of a file of one side.
#[async_trait]
pub trait ContentSource: Send + Sync {
    /// The content, at most 5 MiB; `None` when the side no longer has it, as a workspace
    /// whose file changed after it was observed.
    async fn content(&self, path: &RelPath, reference: &Ref) -> Result<Option<Bytes>>;
}

#[async_trait]
impl ContentSource for super::Stored<'_> {
    async fn content(&self, path: &RelPath, reference: &Ref) -> Result<Option<Bytes>> {
        let store: &dyn Store = self.0;
        let bytes = content::read_all(store, reference).await;
        bytes.map(Some).map_err(|e| super::walk::at(path, e))
    }
}

/// Reads both sides of each change that has text to show and adds it. Bytes of a path
/// that is not covered on a side (excluded, a secret) are neither read nor shown.
pub async fn add_text(
    changes: &mut [Change],
    from: &dyn ContentSource,
    to: &dyn ContentSource,
) -> Result<()> {
    let texts: Vec<Option<TextDiff>> = stream::iter(changes.iter())
        .map(|change| one(change, from, to))
        .buffered(READERS)
        .try_collect()
        .await?;
    for (change, text) in changes.iter_mut().zip(texts) {
        change.text = text;
    }
    Ok(())
}

async fn one(
    change: &Change,
    from: &dyn ContentSource,
    to: &dyn ContentSource,
) -> Result<Option<TextDiff>> {
    let comparable = matches!(change.status, Status::Added | Status::Deleted | Status::Modified);
    if change.uncovered.is_some() || !comparable {
        return Ok(None);
    }
    let kinds =
        [&change.from_body, &change.to_body].map(|b| b.as_ref().map(std::mem::discriminant));
    let dir = |b: &Option<Body>| matches!(b, Some(Body::Dir(_)));
    let other_kinds = kinds[0].is_some() && kinds[1].is_some() && kinds[0] != kinds[1];
    if other_kinds || dir(&change.from_body) || dir(&change.to_body) {
        return Ok(None);
    }
    let long = |b: &Option<Body>| matches!(b, Some(Body::File(r)) if r.length > MAX_TEXT_BYTES);
    if long(&change.from_body) || long(&change.to_body) {
        return Ok(Some(TextDiff { oversized: true, ..TextDiff::default() }));
    }
    let old = read(&change.path, change.from_body.as_ref(), from).await?;
    let new = read(&change.path, change.to_body.as_ref(), to).await?;
    Ok(old.zip(new).map(|(old, new)| text_diff(&old, &new)))
}

async fn read(
    path: &RelPath,
    body: Option<&Body>,
    source: &dyn ContentSource,
) -> Result<Option<Bytes>> {
    match body {
        None | Some(Body::Dir(_)) => Ok(Some(Bytes::new())),
        Some(Body::Symlink(target)) => Ok(Some(Bytes::copy_from_slice(target))),
        Some(Body::File(r)) => source.content(path, r).await,
    }
}

/// One change as a unified patch. Lines are written byte for byte, so that the patch
/// can be applied; paths are escaped. What has no text says so in one line.
pub fn patch(change: &Change) -> Vec<u8> {
    let path = quoted(change.path.as_bytes());
    let mut out = format!("diff a/{path} b/{path}\n").into_bytes();
    let mode = |s: &Option<State>| {
        let s = s.as_ref().filter(|s| s.kind != super::StateKind::Symlink)?;
        Some(format!("{:04o}", s.mode))
    };
    let (old, new) = (mode(&change.from), mode(&change.to));
    let mut say = |line: String| out.extend_from_slice(line.as_bytes());
    match (change.status, old, new) {
        (Status::Added, _, new) => say(format!("new {}\n", described(&change.to, new))),
        (Status::Deleted, old, _) => say(format!("deleted {}\n", described(&change.from, old))),
        (_, Some(old), Some(new)) if old != new => say(format!("old mode {old}\nnew mode {new}\n")),
        _ => {}
    }
    if change.status == Status::Kind {
        let kind = |s: &Option<State>| described(s, None);
        say(format!("old kind {}\nnew kind {}\n", kind(&change.from), kind(&change.to)));
    }
    if change.uncovered.is_some() {
        say(String::from("not covered: its bytes are not shown\n"));
    }
    let Some(text) = &change.text else { return out };
    if text.binary {
        say(format!("Binary files a/{path} and b/{path} differ\n"));
    }
    if text.oversized {
        say(format!("Files a/{path} and b/{path} differ and are above 5 MiB\n"));
    }
    let hunks = text.hunks.as_deref().unwrap_or_default();
    if !hunks.is_empty() {
        let side = |there: bool, s: &str| match there {
            true => format!("{s}/{path}"),
            false => String::from("/dev/null"),
        };
        say(format!("--- {}\n", side(change.from.is_some(), "a")));
        say(format!("+++ {}\n", side(change.to.is_some(), "b")));
    }
    for hunk in hunks {
        write_hunk(&mut out, hunk);
    }
    if text.truncated {
        out.extend_from_slice(b"(more lines are not shown)\n");
    }
    out
}

fn described(state: &Option<State>, mode: Option<String>) -> String {
    use super::state::StateKind as K;
    let kind = match state.as_ref().map(|s| s.kind) {
        Some(K::File) => "file",
        Some(K::Symlink) => "symlink",
        Some(K::Dir) => "directory",
        Some(K::Special) => "special file",
        Some(K::Absent) | None => "nothing",
    };
    mode.map_or_else(|| kind.to_owned(), |m| format!("{kind} mode {m}"))
}

fn write_hunk(out: &mut Vec<u8>, hunk: &Hunk) {
    let range = |start: usize, lines: usize| match lines {
        1 => start.to_string(),
        _ => format!("{start},{lines}"),
    };
    let (old, new) = (range(hunk.old_start, hunk.old_lines), range(hunk.new_start, hunk.new_lines));
    out.extend_from_slice(format!("@@ -{old} +{new} @@\n").as_bytes());
    for line in &hunk.lines {
        out.push(match line.kind {
            LineKind::Context => b' ',
            LineKind::Delete => b'-',
            LineKind::Add => b'+',
        });
        let (bytes, ended) = line.content();
        out.extend_from_slice(bytes);
        let end: &[u8] = if ended { b"\n" } else { b"\n\\ No newline at end of file\n" };
        out.extend_from_slice(end);
    }
}
