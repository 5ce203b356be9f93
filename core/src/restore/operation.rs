//! Operation ids: a request that is repeated is answered with its recorded result.

use futures::StreamExt;

use super::journal::{Journal, JournalState};
use super::request::RestoreRequest;
use super::result::RestoreResult;
use crate::capture::Recorder;
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::store::{Listed, Prefix};

/// Only the digest of an operation id is stored.
pub(super) fn digest(request: &RestoreRequest) -> Option<Digest> {
    request.operation_id.as_ref().map(|id| Digest::of(id.as_bytes()))
}

/// The recorded result of this operation id, when it is done. `operation-reused`
/// (exit 4) when the id was used for another request, or for one that was rolled back.
pub(super) async fn recorded(
    recorder: &Recorder,
    request: &RestoreRequest,
) -> Result<Option<RestoreResult>> {
    let Some(wanted) = digest(request) else { return Ok(None) };
    let Some(journal) = find(recorder, wanted).await? else { return Ok(None) };
    let used = |why: &str| {
        let message = format!("this operation id {why} ({})", journal.transaction);
        Err(Error::refused("operation-reused", message).with_hint("use a new operation id"))
    };
    if journal.request_digest != request.digest() {
        return used("was used for another request");
    }
    match journal.state {
        JournalState::RolledBack => used("belongs to a restore that was rolled back"),
        JournalState::Closed | JournalState::Committed => {
            let Some(value) = journal.result else { return Ok(None) };
            let result = serde_json::from_value(value).map_err(|e| {
                Error::corrupt(format!("the result of {} is not readable", journal.transaction))
                    .with_source(e)
            })?;
            Ok(Some(result))
        }
        // Under way or cut short: settling it is the next thing that happens.
        _ => Ok(None),
    }
}

async fn find(recorder: &Recorder, wanted: Digest) -> Result<Option<Journal>> {
    let store = recorder.store();
    let mut rows = store.list(&Prefix::Journals(recorder.root().key.clone()));
    let mut keys = Vec::new();
    while let Some(row) = rows.next().await {
        if let Listed::Doc { key, .. } = row? {
            keys.push(key);
        }
    }
    drop(rows);
    for key in keys {
        let doc = match store.get(&key).await {
            Ok(doc) => doc,
            Err(e) if e.is_not_found() => continue,
            Err(e) => return Err(e),
        };
        let journal = Journal::read(&key.to_string(), &doc.body)?;
        if journal.operation_digest == Some(wanted) {
            return Ok(Some(journal));
        }
    }
    Ok(None)
}
