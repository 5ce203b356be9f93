//! Workflow files, templates, and the engine as a machine: no disk, no process.

mod budget;
mod examples;
mod fan;
mod file;
mod findings;
mod flow;
mod people;
mod properties;
mod templates;
mod world;
