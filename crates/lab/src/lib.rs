//! Experiments that prove a feature on the user's own host.
//!
//! *Trust but verify* as a library: an [`experiment`] alternates a feature live under running traffic, the
//! [`statistics`] say whether there is a difference at all, and the report shows every raw number.

mod daemon;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod host;
mod in_process;
mod interrupt;
mod meter;
mod namespaces;
mod progress;
pub mod report;
mod site;
pub mod statistics;
mod topology;
pub mod validate;

pub use error::LabError;
pub use interrupt::Interrupt;
