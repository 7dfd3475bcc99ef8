//! Experiments that prove a feature on the user's own host.
//!
//! *Trust but verify* as a library: an [`experiment`] alternates a feature live under running traffic, the
//! [`statistics`] say whether there is a difference at all, and the report shows every raw number.

pub mod error;
pub mod experiment;
pub mod statistics;

pub use error::LabError;
