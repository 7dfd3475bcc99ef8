//! `millrace connections`: throughput of one to ten thousand connections through the same switch,
//! toward a guest, or toward the receiver of existing hosts.

use crate::campaign::{Campaign, Point};
use crate::experiment::{Description, Experiment};
use crate::experiments::sweep;
use crate::load::Load;
use crate::options::Options;
use crate::plan::Arm;
use std::path::PathBuf;

/// Connection counts in their order, up to NTttcp's maximum.
pub const CONNECTIONS: &[u32] = &[1, 10, 100, 1000, 10_000];

/// `millrace connections`.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Whether it is measured between existing hosts.
    between: bool,
}

/// Note between hosts of its own.
const OWN: &str = "All offloads have their defaults; up to 16 threads at each end share the connections. Sender, switch and receiver \
                   share this machine's processors, which are the bottleneck. Each connection has at least one frame in flight, so with \
                   more connections than the uplink's ring has slots (4,096 at MTU 1500) many frames are lost and retransmitted. Bytes \
                   that connections have not delivered at the end are read from the kernel and accounted for.";

/// Note between existing hosts.
const BETWEEN: &str = "Hosts and switch have the settings they had; up to 16 threads at each end share the connections. Bytes that \
                       connections have not delivered at the end are read from the kernel and accounted for.";

impl Experiment for Connections {
    fn description(&self) -> Description {
        Description {
            name: "connections",
            title: "From one connection to ten thousand",
            measures: sweep::MEASURES,
            note: Some(if self.between { BETWEEN } else { OWN }),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        vec![sweep::measured()]
    }

    fn changes_nothing(&self) -> bool {
        self.between
    }
}

impl Options {
    /// Returns the defaults of `millrace connections`: 1 to 10,000 connections, five seconds each.
    pub fn connections(program: PathBuf) -> Options {
        Options { connections: CONNECTIONS.to_vec(), repetitions: 5, ..Options::new(program) }
    }
}

/// Returns the campaign of `millrace connections`.
pub fn campaign(options: &Options) -> Campaign {
    let experiment: &'static Connections = match options.existing_hosts {
        Some(_) => &Connections { between: true },
        None => &Connections { between: false },
    };
    let point = |connections: &u32| {
        let mut plan = experiment.plan(options.mtu, options.interval, options.stop());
        let load = Load::bulk(*connections);
        plan.warm_up += load.gathering();
        Point { experiment, load, plan }
    };
    let points = options.connections.iter().map(point).collect();
    Campaign::new(experiment, points)
}
