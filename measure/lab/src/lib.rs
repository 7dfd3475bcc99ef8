//! Experiments that prove a feature on the user's own host.
//!
//! *Trust but verify* as a library: an [`experiment`] alternates a feature live under running
//! traffic, the [`statistics`] say whether there is a difference at all, and the report shows every
//! raw number.

pub mod between;
pub mod campaign;
mod come_and_go;
pub mod compare;
mod daemon;
pub mod error;
pub mod experiment;
pub mod experiments;
mod explain;
mod guest;
pub mod host;
mod in_process;
mod interrupt;
mod iperf;
mod machine;
mod meter;
mod migration;
mod namespaces;
pub mod options;
mod pair;
mod passed;
pub mod placement;
mod port;
mod progress;
pub mod report;
mod running;
mod site;
mod state;
mod storage;
mod topology;
mod usage;
pub mod validate;

pub use error::LabError;
pub use interrupt::Interrupt;
