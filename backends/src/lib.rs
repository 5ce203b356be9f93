//! backtrail.
