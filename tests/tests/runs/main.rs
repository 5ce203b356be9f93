//! Runs with real commands in real directories, through the command line.

mod boundaries;
mod crashes;
mod ending;
mod flow;
mod locks;
mod numbers;
mod processes;
mod stories;
mod verbs;
mod world;
