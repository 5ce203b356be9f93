//! Runs with real commands in real directories, through the command line.

mod boundaries;
mod crashes;
mod ending;
mod flow;
mod gone;
mod kills;
mod locks;
mod numbers;
mod processes;
mod rewinds;
mod stories;
mod verbs;
mod world;
