//! Which run a text means: a full id, a unique prefix, a name or `latest`.

use futures::StreamExt;

use super::change::Run;
use super::list::RunRow;
use super::store::RunStore;
use crate::error::{Error, Result};
use crate::ids::RunId;

impl RunStore {
    /// The run that `text` means. `latest` is the newest of the workspace `work_dir`
    /// (`None`: of the store). The first kind that matches decides, in the order full id,
    /// `latest`, unique prefix, name. Fails with `ambiguous` (exit 2) with id, name, age
    /// and status of the candidates, and with `not-found` (exit 6).
    pub async fn resolve(&self, text: &str, work_dir: Option<&str>) -> Result<Run> {
        let id = RunId::new(text)?;
        match self.load(&id).await {
            Err(e) if e.code() == "not-found" => {}
            found => return found,
        }
        if text == "latest" {
            return self.latest(work_dir).await;
        }
        let places = self.places().await?;
        let by_prefix: Vec<RunId> =
            places.runs.into_iter().filter(|r| r.as_str().starts_with(text)).collect();
        if let [one] = &by_prefix[..] {
            return self.load(one).await;
        }
        let named = self.named(text).await?;
        match (&named[..], &by_prefix[..]) {
            ([one], _) => Ok(one.clone()),
            ([], []) => Err(self.missing(&id).await),
            ([], _) => {
                let mut runs = Vec::new();
                for id in &by_prefix {
                    runs.push(self.load(id).await?);
                }
                Err(self.ambiguous(text, "prefix", &runs))
            }
            (several, _) => Err(self.ambiguous(text, "name", several)),
        }
    }

    async fn latest(&self, work_dir: Option<&str>) -> Result<Run> {
        let mut rows = self.list();
        while let Some(row) = rows.next().await {
            if let RunRow::Run(run) = row?
                && work_dir.is_none_or(|dir| run.record.work_dir.as_deref() == Some(dir))
            {
                return Ok(*run);
            }
        }
        let place = if work_dir.is_some() { "of this workspace" } else { "in the store" };
        Err(Error::not_found(format!("there is no run {place}"))
            .with_hint("backtrail runs list --all"))
    }

    async fn named(&self, name: &str) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        let mut rows = self.list();
        while let Some(row) = rows.next().await {
            if let RunRow::Run(run) = row?
                && run.record.name == name
            {
                found.push(*run);
            }
        }
        Ok(found)
    }

    fn ambiguous(&self, text: &str, kind: &str, runs: &[Run]) -> Error {
        let now = self.now().0;
        let rows: Vec<String> = runs
            .iter()
            .map(|run| {
                let seconds = (now.saturating_sub(run.record.created().0)).max(0) / 1_000_000_000;
                format!("{} ({}, {seconds}s old, {})", run.id(), run.record.name, run.status())
            })
            .collect();
        Error::invalid(format!("run {kind} {text:?} is ambiguous: {}", rows.join(", ")))
            .with_code("ambiguous")
            .with_detail("candidates", rows)
    }
}
