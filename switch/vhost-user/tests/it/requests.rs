//! Requests of a front end that the `vhost` crate does not know, by their numbers.

pub(crate) const SET_MTU: u32 = 20;
pub(crate) const SET_STATUS: u32 = 39;
pub(crate) const GET_STATUS: u32 = 40;
