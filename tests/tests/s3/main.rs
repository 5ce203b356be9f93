//! The S3 store beside a real server: what only a bucket can do wrong.

mod bars;
mod cli;
mod locks;
mod lost;
mod packs;
mod places;
mod servers;
mod world;
