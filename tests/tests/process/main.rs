//! Attempts of real commands: groups, output, stops, files, the log, the terminal.

mod alive;
mod basics;
mod files;
mod groups;
mod log;
mod output;
mod stops;
mod terminal;
mod world;
