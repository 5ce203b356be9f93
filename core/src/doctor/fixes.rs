//! What doctor can put right without guessing.

use serde::Serialize;

use crate::clock::Context;
use crate::error::{Kind, Result};
use crate::ids::Chain;
use crate::snapshot::chain::{LoadedRefs, all_chains, load_refs};
use crate::store::{DocKey, Expect, Store, docs};

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fix", content = "of")]
pub enum Fix {
    /// Write refs that were lost, as rebuilt from the snapshot documents.
    RebuildRefs(Chain),
    /// Let the store remove stale staging and free what deletions left.
    Maintain,
}

impl std::fmt::Display for Fix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RebuildRefs(chain) => {
                write!(f, "write the refs of {chain}, rebuilt from its documents")
            }
            Self::Maintain => f.write_str("remove stale staging files from the store"),
        }
    }
}

/// What [`fix`] would do. Changes nothing.
pub async fn plan(store: &dyn Store) -> Result<Vec<Fix>> {
    match store.get(&DocKey::Marker).await {
        Ok(_) => {}
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        Err(e) => return Err(e),
    }
    let mut out = Vec::new();
    for chain in all_chains(store).await? {
        match load_refs(store, &chain).await {
            Ok(refs) if refs.rebuilt.is_some() => out.push(Fix::RebuildRefs(chain)),
            Ok(_) => {}
            // nothing may be written to a chain of a newer build
            Err(e) if e.kind() == Kind::Newer => {}
            Err(e) => return Err(e),
        }
    }
    out.push(Fix::Maintain);
    Ok(out)
}

/// Does what was planned. A chain whose refs came back meanwhile is left alone.
pub async fn fix(store: &dyn Store, ctx: &Context, fixes: &[Fix]) -> Result<()> {
    for fix in fixes {
        match fix {
            Fix::RebuildRefs(chain) => rebuild(store, ctx, chain).await?,
            Fix::Maintain => store.maintain().await?,
        }
    }
    Ok(())
}

async fn rebuild(store: &dyn Store, ctx: &Context, chain: &Chain) -> Result<()> {
    let LoadedRefs { refs, version, rebuilt } = load_refs(store, chain).await?;
    if rebuilt.is_none() {
        return Ok(());
    }
    let expect = version.map_or(Expect::Absent, Expect::Version);
    let key = DocKey::Refs(chain.clone());
    match docs::save(store, &*ctx.ids, &key, &refs, expect, None).await {
        Err(e) if e.is_conflict() => Ok(()), // a capture wrote them first
        saved => saved.map(drop),
    }
}
