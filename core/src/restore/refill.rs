//! Originals that are gone from staging, fetched again from the bank before a roll-back.

use std::sync::Arc;

use super::fill::{self, NewFile, Place};
use super::journal::BankRef;
use super::revert::lacks_original;
use super::stage::step_name;
use super::work::Work;
use crate::clock::Context;
use crate::error::{Error, IoContext, Result};
use crate::object::content;
use crate::snapshot::chain;
use crate::snapshot::tree::Body;
use crate::store::Store;
use crate::tasks::blocking;

/// Puts the content of every step whose original is missing into `new`, where rolling
/// back finds it. Needs the store only when something is missing.
pub(super) async fn refill(
    work: &Arc<Work>,
    ctx: &Context,
    store: &dyn Store,
    bank: Option<&BankRef>,
) -> Result<()> {
    let w = Arc::clone(work);
    let missing = blocking(move || {
        let mut out = Vec::new();
        for n in 0..w.steps.len() {
            if lacks_original(&w, n)? {
                out.push(n);
            }
        }
        Ok(out)
    })
    .await?;
    if missing.is_empty() {
        return Ok(());
    }
    let gone = || Error::failed("rollback-failed", "originals are gone and there is no bank");
    let bank = bank.ok_or_else(gone)?;
    let root = chain::read_snapshot(store, &bank.chain, &bank.snapshot).await?.root;
    let (mut files, mut links) = (Vec::new(), Vec::new());
    for n in missing {
        let step = &work.steps[n];
        let held = content::entry_at(store, &root, &step.path).await?;
        let lost = || {
            let message = format!("the bank does not hold {}", step.path);
            Error::failed("rollback-failed", message)
        };
        match held.ok_or_else(lost)?.body {
            Body::File(content) => files.push(NewFile {
                dir: work.stage.number(n),
                name: step_name(n).into(),
                mode: step.before.mode,
                content,
            }),
            Body::Symlink(target) => links.push((n, target)),
            Body::Dir(_) => {}
        }
    }
    let place: Arc<dyn Place> = Arc::clone(work) as _;
    fill::fill(store, ctx, place, files, 2).await?;
    let w = Arc::clone(work);
    blocking(move || {
        for (n, target) in links {
            let (new, name) = (&w.stage.place(n).new, step_name(n));
            let made = match new.make_link(&target, &name) {
                // An earlier roll-back came this far.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    match new.read_link(&name) {
                        Ok(there) if there == target => Ok(()),
                        _ => Err(e),
                    }
                }
                made => made,
            };
            made.context(|| format!("failed to stage {}", w.steps[n].path))?;
        }
        Ok(())
    })
    .await
}
