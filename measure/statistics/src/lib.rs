//! Statistics of samples: how large they are, how much they spread, and whether two arms differ.
//!
//! Called by the experiment engine (to know when it may stop) and by the report. Everything here is
//! pure and deterministic: the same samples always give the same verdict.

mod order;
mod summary;
mod verdict;

pub use order::sequence;
pub use summary::{Summary, median, quantile};
pub use verdict::{
    Better, CONFIDENCE, Comparison, DEFAULT_REPETITIONS, FEWEST_PAIRS, Interval, Rule, Verdict,
    compare, compare_independent, holm,
};
