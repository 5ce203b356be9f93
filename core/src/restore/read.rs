//! Reading the touched files for the bank: whole, hashed, compared with the plan, and
//! into the store. A digest that some cache remembers stands in for none of them.

use std::io::Read;
use std::sync::Arc;

use super::bank::failed;
use super::work::changed;
use crate::capture::Recorder;
use crate::diff::StateKind;
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, ReadFailure};
use crate::plan::Step;
use crate::store::{MAX_BYTES, Object, PutObjects, PutOutcome};
use crate::tasks::{self, blocking};

/// Files read in one crossing.
const BATCH_FILES: usize = 128;
/// Bytes in memory of one batch.
const BATCH_BYTES: u64 = 12 << 20;

/// True if every touched file is one object. Larger ones are left to a capture, which
/// cuts them.
pub(super) fn is_small(steps: &[Step]) -> bool {
    steps.iter().all(|s| s.before.kind != StateKind::File || s.before.size <= MAX_BYTES as u64)
}

/// Reads every touched file and stores what it holds. `changed-since-plan` for the
/// first that is not as planned.
pub(super) async fn store(recorder: &Recorder, steps: &[Step]) -> Result<()> {
    let files: Vec<&Step> = steps.iter().filter(|s| s.before.kind == StateKind::File).collect();
    let mut batches: Vec<Vec<Step>> = vec![Vec::new()];
    let mut bytes = 0;
    for step in files {
        bytes += step.before.size;
        let full = batches.last().is_some_and(|b| b.len() >= BATCH_FILES);
        if full || bytes > BATCH_BYTES {
            batches.push(Vec::new());
            bytes = step.before.size;
        }
        if let Some(last) = batches.last_mut() {
            last.push(step.clone());
        }
    }
    let (root, store) = (&recorder.root().dir, recorder.store());
    let cancel = &recorder.context().cancel;
    let work = batches.into_iter().map(|batch| async move {
        cancel.check()?;
        let root = Arc::clone(root);
        let objects = blocking(move || batch.iter().map(|s| read(&root, s)).collect()).await?;
        let objects: Vec<Object> = objects;
        let stored = store.put_objects(
            objects.into_iter().filter(|o| !o.bytes().is_empty()).collect(),
            PutObjects::Check,
        );
        for outcome in stored.await.map_err(failed)? {
            if let PutOutcome::Failed(e) = outcome {
                return Err(failed(e));
            }
        }
        Ok(())
    });
    tasks::all(work, recorder.settings().observe.threads).await?;
    Ok(())
}

fn read(root: &Dir, step: &Step) -> Result<Object> {
    let found = fsx::read_stable(root, &step.path, |file, stat| {
        // A file that grew since the plan is told by its length alone.
        let mut bytes = Vec::with_capacity(stat.size.min(MAX_BYTES as u64) as usize);
        let read = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)? as u64;
        Ok((bytes, read))
    });
    let (bytes, stat) = match found {
        Ok(found) => found,
        Err(ReadFailure::Io(e)) => {
            let message = format!("{} could not be read: {e}", step.path);
            return Err(failed(
                Error::failed("bank-failed", message).with_paths([step.path.text().into_owned()]),
            ));
        }
        Err(_) => return Err(changed(&step.path)),
    };
    if bytes.len() as u64 != step.before.size || stat.mode != step.before.mode {
        return Err(changed(&step.path));
    }
    let object = Object::new(bytes)?;
    if Some(object.digest()) != step.before.digest {
        return Err(changed(&step.path));
    }
    Ok(object)
}
