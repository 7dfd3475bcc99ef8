//! Figures out of samples: how large, how much spread, and whether two arms differ at all.
//!
//! Called by the experiment engine (to know when it may stop) and by the report. Everything here is pure and
//! deterministic: the bootstrap draws from a seeded generator, so the same samples always give the same verdict.

mod bootstrap;
mod order;
mod summary;

pub use bootstrap::{
    Better, Comparison, FEWEST_PAIRS, Interval, Verdict, compare, compare_independent,
};
pub use order::sequence;
pub use summary::{Summary, median, quantile};
