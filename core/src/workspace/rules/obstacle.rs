//! Default directories on the way to a path. Each keeps what is below it out until
//! a negation that names it decides for it or for something at or below it.

use super::decision::{Hit, Source};
use super::pattern::PathPattern;

/// A default or marked directory that is not freed (yet).
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    /// How many names lead to it.
    pub(super) depth: u32,
    /// The entry or marker that makes it one.
    pub(super) source: Source,
    /// The negated path patterns that have named it on the way here and could still
    /// match, with their states.
    pub(super) freers: Vec<Freer>,
}

/// A pattern that frees an obstacle where it decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freer {
    pub(super) hit: Hit,
    pub(super) state: u64,
}

impl Obstacle {
    /// True if the line `hit`, which decided for `name` in the present directory,
    /// names this obstacle.
    pub(super) fn freed_by(&self, hit: Hit, pattern: &PathPattern, name: &[u8]) -> bool {
        let freer = self.freers.iter().find(|f| f.hit == hit);
        freer.is_some_and(|f| pattern.accepted(pattern.step(f.state, name)))
    }

    /// The obstacle as seen from inside the directory `name`.
    pub(super) fn enter<'a>(
        &self,
        name: &[u8],
        pattern: impl Fn(Hit) -> Option<&'a PathPattern>,
    ) -> Self {
        let step = |f: &Freer| {
            let pattern = pattern(f.hit)?;
            let state = pattern.step(f.state, name);
            pattern.alive(state).then_some(Freer { hit: f.hit, state })
        };
        Self { freers: self.freers.iter().filter_map(step).collect(), ..*self }
    }
}
