//! Plans and diffs over worlds in memory: the pure parts of restore.

mod decide;
mod diff;
mod load;
mod model;
mod setup;
mod world;
