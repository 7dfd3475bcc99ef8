//! Dynamic VMMQ: which ingress queue or indirection entry moves to which worker, and why.
//!
//! [`Balancer::decide`] is a pure function of measurements and time: no clock, no randomness, no
//! system call. The daemon calls it with measurements of its workers, the simulator with those of
//! its cost model, so both run the same code. The caller measures at a steady interval (20 ms),
//! carries out the moves in the given order, and measures again.
//!
//! Three steps, in this order:
//! 1. *relieve* ([relief.rs](self)): a worker above [`Settings::high`] gives items to workers in
//!    use that have room, else to unused ones. What a saturated worker's items want is unknown, so
//!    a few of them go ahead to an unused worker, and what they use there tells how far to spread
//!    the others.
//! 2. *bring home*: items go back to the NUMA node of their guest's memory once there is room.
//! 3. *coalesce*: a worker is emptied when its items fit beside others' below [`Settings::low`],
//!    with the highest loads of the last [`Settings::settle`] for both. At last one worker is in
//!    use, which sleeps when nothing arrives.
//!
//! All loads are shares of one worker: 0.5 is half of its time.
//!
//! Hysteresis: workers are filled to `fill` and coalesced to `low`, both below `high`; an item
//! rests for [`Settings::rest`] after each move; [`Settings::moves_a_second`] bounds the moves of
//! all.

mod balancer;
mod coalesce;
mod measurement;
mod moves;
mod relief;
mod scene;
mod settings;

pub use balancer::Balancer;
pub use measurement::{Item, ItemId, Measurement, Mode, Part, Reach, Worker};
pub use moves::{Move, Reason};
pub use settings::Settings;
