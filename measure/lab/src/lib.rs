//! Experiments that prove a feature on the user's own host.
//!
//! *Trust but verify* as a library: an [experiment](experiments) alternates a feature live under
//! running traffic, the [`statistics`] say whether there is a difference at all, and the report
//! shows every raw number.
//!
//! Five nouns: an experiment says what its arms are; a [`plan`] says how often and how long they
//! are measured; a site has the hosts; a bench runs a plan there under one [`load`]; a [`campaign`]
//! is the points of one command, which the [`runner`] measures and reports.

mod bulk_flows;
pub mod campaign;
pub mod compare;
mod daemon;
pub mod error;
pub mod existing_hosts;
mod experiment;
pub mod experiments;
mod explain;
mod guest;
pub mod host;
mod in_process;
mod interrupt;
mod iperf;
pub mod load;
mod machine;
mod measure;
mod meter;
mod migration;
mod namespaces;
pub mod options;
mod peers;
pub mod placement;
pub mod plan;
mod port;
mod port_churn;
mod progress;
pub mod report;
mod round_trips;
pub mod runner;
mod running;
mod shell;
mod site;
mod state;
mod storage;
mod switch_counters;
mod topology;
mod two_paths;
mod usage;
pub mod validate;
pub mod vnic;

pub use error::LabError;
pub use interrupt::Interrupt;
pub use switch_counters::delivered;
