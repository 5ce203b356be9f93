//! Runs with real commands in real directories, through the command line.

mod bars;
mod boundaries;
mod crashes;
mod ending;
mod flow;
mod gone;
mod hooks;
mod kills;
mod library;
mod locks;
mod numbers;
mod processes;
mod rewinds;
mod shell;
mod stories;
mod terminal;
mod verbs;
mod world;
