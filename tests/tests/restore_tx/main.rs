//! Restores as transactions: bank, stage, journal, swap, roll back, recover, undo.

mod files;
mod into;
mod kill;
mod lost;
mod speed;
mod transaction;
mod undo;
mod world;
