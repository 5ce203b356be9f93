//! Runs with real commands in real directories, through the command line.

mod boundaries;
mod ending;
mod flow;
mod locks;
mod processes;
mod world;
