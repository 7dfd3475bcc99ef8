//! One command a file: its arguments and help, and a function `run`.

pub(crate) mod acl;
mod between;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod connections;
pub(crate) mod lab;
pub(crate) mod lab_host;
pub(crate) mod ladder;
pub(crate) mod man;
pub(crate) mod measuring;
pub(crate) mod ntttcp;
pub(crate) mod openapi;
pub(crate) mod port;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod rsc;
pub(crate) mod rss;
pub(crate) mod run;
mod snippet;
pub(crate) mod status;
pub(crate) mod sweep;
pub(crate) mod top;
pub(crate) mod validate;
pub(crate) mod vmmq;
mod vmmq_sim;
