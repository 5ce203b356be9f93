//! Checks of the repository itself: layers, conformance ids, documents, tidiness.

mod conformance;
mod docs;
mod layers;
mod source;
mod tidy;
