//! Dynamic VMMQ on virtual time: 64 workers of two sockets, a thousand vNICs, generated or recorded
//! load.
//!
//! [`simulate`] runs one load under each [`Algorithm`]: ours, with the code that the daemon runs
//! ([`balance::Balancer`]); an oracle that knows the demand and places everything anew at no cost;
//! and three others, as they are published. Load is a fluid: each unit wants a share of a worker's
//! time. An overloaded worker serves fair shares, and the rest is lost. The shares come from
//! measured turns ([`cost`]).
//!
//! [`replay`] predicts from one [`Recording`] of a real switch how busy its workers are in another,
//! and compares.

mod algorithm;
pub mod cost;
mod generate;
mod irqbalance;
mod load;
mod machine;
mod oracle;
mod ovs;
mod recording;
mod replay;
mod report;
mod run;

pub use algorithm::Algorithm;
pub use generate::{Generated, LoadLength};
pub use load::{Load, Unit};
pub use machine::Machine;
pub use recording::{
    RecordedItem, RecordedMove, RecordedWorker, Recording, RecordingError, VERSION,
};
pub use replay::{Compared, Replay, ReplayError, ReplayedItem, replay};
pub use report::{Figures, LoadReport, Report};
pub use run::simulate;
