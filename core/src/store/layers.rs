//! The strict in-memory reference store.
