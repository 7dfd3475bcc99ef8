//! The stages of a turn.

pub(crate) mod black_hole;
pub(crate) mod coalesce;
pub(crate) mod decide;
pub(crate) mod deliver;
pub(crate) mod filter;
pub(crate) mod fit;
pub(crate) mod segment;
pub(crate) mod steer;
pub(crate) mod too_big;
