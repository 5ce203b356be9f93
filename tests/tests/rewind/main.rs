//! Rewinds of runs: what a run changed, its record, and both together, killed anywhere.

mod auto;
mod kill;
mod record;
mod refuse;
mod scope;
mod windows;
mod world;
