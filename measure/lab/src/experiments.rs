//! The experiments, one file each: its arms, its words, its proof, and a `campaign` function. A new
//! one is a new file and a line here.

pub mod acl;
pub mod checksum;
pub mod connections;
mod guest_offload;
pub mod hotplug;
pub mod iscsi;
pub mod jumbo;
pub mod kernel_path;
pub mod ladder;
pub mod limits;
pub mod lso;
pub mod migration;
pub mod rate;
pub mod rsc;
pub mod self_test;
pub mod storage;
pub mod sweep;
pub mod team;
mod two_paths;
pub mod vlan;
pub mod vmmq;
pub mod vrss;
pub mod xdp;

use crate::measure::{GUIDE, Measure};

/// Returns the columns of an experiment's table, by the experiment's name.
pub(crate) fn measures(experiment: &str) -> &'static [Measure] {
    match experiment {
        "sweep" | "connections" => sweep::MEASURES,
        "iscsi" => iscsi::MEASURES,
        "kernel-path" => kernel_path::MEASURES,
        "migration" => migration::MEASURES,
        "rate" => rate::MEASURES,
        "storage" => storage::MEASURES,
        "vmmq" => vmmq::MEASURES,
        "vrss" => vrss::MEASURES,
        _ => GUIDE,
    }
}
