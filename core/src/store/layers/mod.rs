//! Layers: pure wrappers over a store.
