//! Asking before a restore: the plan shown is the one applied.

use std::sync::Mutex;

use async_trait::async_trait;
use backtrail_core::error::Result;
use backtrail_core::plan::{Identity, Plan};
use backtrail_core::restore::Hooks;
use backtrail_core::snapshot::doc::Snapshot;

use super::Agreement;
use crate::confirm;
use crate::context::App;
use crate::output::format;

/// Shows the plan and asks where a person has to agree.
pub(crate) struct Confirm<'a> {
    app: &'a App,
    target: Option<&'a Snapshot>,
    agreement: &'a Agreement,
    allow_mass_delete: bool,
    shown: Mutex<bool>,
    also: Mutex<Vec<String>>,
}

impl<'a> Confirm<'a> {
    /// For a restore of `target`.
    pub(crate) fn new(
        app: &'a App,
        target: &'a Snapshot,
        agreement: &'a Agreement,
        allow_mass_delete: bool,
    ) -> Self {
        Self { target: Some(target), ..Self::of_run(app, agreement, allow_mass_delete) }
    }

    /// For an undo or a redo, whose scope is small by nature.
    pub(crate) fn again(app: &'a App, agreement: &'a Agreement) -> Self {
        Self::of_run(app, agreement, true)
    }

    /// For the files of a run; all of them may be most of the workspace.
    pub(crate) fn of_run(app: &'a App, agreement: &'a Agreement, allow_mass_delete: bool) -> Self {
        let (shown, also) = (Mutex::default(), Mutex::default());
        Self { app, target: None, agreement, allow_mass_delete, shown, also }
    }

    /// True if the plan was shown.
    pub(crate) fn preview(&self) -> bool {
        *self.shown.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn show(&self, plan: &Plan) {
        if self.app.out.is_json() {
            return;
        }
        self.app.out.preview(&plan.preview(self.agreement.full));
        for line in &*self.also.lock().unwrap_or_else(|e| e.into_inner()) {
            self.app.out.preview(line);
        }
        *self.shown.lock().unwrap_or_else(|e| e.into_inner()) = true;
    }

    /// What the target is, for a plan that deletes most of the workspace.
    fn described(&self, plan: &Plan) -> String {
        match self.target {
            Some(s) => format!(
                "{} of {} with {}",
                s.id,
                format::age(&s.created_at, self.app.now()),
                format::count(s.counts.files, "file"),
            ),
            None => plan.target.snapshot.to_string(),
        }
    }
}

#[async_trait]
impl Hooks for Confirm<'_> {
    fn planned(&self, plan: &Plan) {
        if !self.app.out.is_json() {
            plan.preview(self.agreement.full).lines().for_each(|line| self.app.out.line(line));
        }
    }

    fn also(&self, lines: &[String]) {
        *self.also.lock().unwrap_or_else(|e| e.into_inner()) = lines.to_vec();
    }

    async fn confirm(&self, plan: &Plan, identity: Identity) -> Result<()> {
        let destroys = plan.steps.iter().any(|s| !s.before.is_absent());
        let other_place = identity != Identity::Same;
        let mass = plan.mass_delete().filter(|_| !self.allow_mass_delete);
        if mass.is_none() && (self.agreement.yes || !(destroys || other_place)) {
            return Ok(());
        }
        self.show(plan);
        if let Some(mass) = mass {
            let question = format!(
                "This deletes {} of {} files to put back {}.",
                mass.deletes,
                mass.covered,
                self.described(plan),
            );
            let word = mass.deletes.to_string();
            return confirm::typed(self.app, &question, &word, "--allow-mass-delete").await;
        }
        let c = &plan.counts;
        let place = match identity {
            Identity::Same => "",
            Identity::Recreated => " in a directory that was made anew since (nothing is deleted)",
            Identity::Foreign => " in another directory than recorded (nothing is deleted)",
        };
        let question =
            format!("Write {} and delete {}{place}?", c.written + c.mode_changed, c.deleted);
        confirm::agree(self.app, &question, "--yes").await
    }
}
