//! vRSS: a vNIC with one queue pair, against several that the indirection table selects, against
//! several with each flow delivered on the pair from which the guest sends it.
//!
//! In all arms the uplink has as many queues as the vNIC has at most, so that only the vNIC's are
//! compared. The guest's kernel answers each flow on the queue that it came from, so an ingress
//! queue without frames is one to which nothing was delivered.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::measure::{CPU, Measure, RECEIVING, THROUGHPUT_GBPS};
use crate::options::Options;
use crate::report::{Case, Check};
use crate::topology::Topology;
use crate::vnic::Vnic;
use serde_json::json;
use std::path::PathBuf;

/// The arms, which are cumulative steps; the later two are values of the key `steer`.
const ARMS: [&str; 3] = ["one", "rss", "follow"];

/// Connections for each queue. With half as many, one of four queues would be silent by chance in
/// one of 2,500 intervals.
pub(crate) const CONNECTIONS: u32 = 16;

pub(super) const MEASURES: &[Measure] =
    &[THROUGHPUT_GBPS, Measure { decimals: 1, ..CPU }, RECEIVING];

/// `millrace validate vrss`.
#[derive(Debug)]
pub(crate) struct Vrss;

impl Experiment for Vrss {
    fn description(&self) -> Description {
        Description {
            name: "vrss",
            title: "vRSS: a vNIC with one queue pair or several",
            steps: true,
            measures: MEASURES,
            note: Some(
                "The guest answers a flow on the queue that the table chose, so the last arm shows the cost of following. In all arms the \
                 uplink has as many queues as the vNIC has at most. Connections are spread by hash; the default is 16 per queue, because \
                 fewer may leave a queue silent, which fails the check.",
            ),
            ..Description::PLAIN
        }
    }

    fn switch(
        &self,
        topology: &mut Topology,
        daemon: &mut Daemon,
        arm: &str,
    ) -> Result<(), LabError> {
        needs_tap(topology)?;
        let (queues, is_one) = (topology.queues, arm == ARMS[0]);
        let (pairs, steer) = (if is_one { 1 } else { queues }, (!is_one).then_some(arm));
        let uplink = json!({ "queues": queues });
        // Reopened in each arm, with one pair at first, so that all arms begin alike.
        daemon.reopen(&uplink, &json!({ "queues": 1, "steer": null }))?;
        daemon.reopen(&uplink, &json!({ "queues": pairs, "steer": steer }))?;
        match steer {
            Some(steer) => daemon.steers_by(steer),
            None => Ok(()),
        }
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns an error unless the vNIC is a TAP, whose kernel answers on the queue of a flow.
pub(super) fn needs_tap(topology: &Topology) -> Result<(), LabError> {
    let why = || "vRSS is measured toward a TAP, but /dev/net/tun cannot be opened".to_owned();
    (topology.vnic == Vnic::Tap).then_some(()).ok_or_else(|| LabError::Switch(why()))
}

impl Options {
    /// Returns the defaults of `validate vrss`: ports with `queues` queues, and enough connections
    /// to reach each of them.
    pub fn vrss(queues: u32, program: PathBuf) -> Options {
        let connections = vec![CONNECTIONS * queues];
        Options { connections, queues: vec![queues], ..Options::new(program) }
    }
}

/// Returns the campaign of `millrace validate vrss`.
pub fn campaign(options: &Options) -> Campaign {
    let pairs = options.most_queues();
    let several = |steer| format!("{pairs} queue pairs, steer={steer}");
    let labels = ["1 queue pair".to_owned(), several(ARMS[1]), several(ARMS[2])];
    Campaign::reopening(&Vrss, options, ARMS.into_iter().zip(labels), Vec::new())
}

/// Proves the arms by the vNIC's queue pairs, each of which carried frames in each interval.
fn proof(case: &Case) -> Option<Check> {
    let [one, rss, follow] = ARMS.map(|arm| case.median(arm, "vnic_queues"));
    let (one, rss, follow) = (one?, rss?, follow?);
    let [alone, by_table, followed] = ARMS.map(|arm| case.total(arm, "vnic_silent_queues"));
    let silent = [alone?, by_table?, followed?];
    let seen = format!(
        "queue pairs {one}, {rss}, {follow}; of these carried nothing, over all intervals: {}",
        silent.map(|queues| queues.to_string()).join(", ")
    );
    proven(one == 1.0 && rss > 1.0 && follow == rss && silent == [0.0; 3], seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Values;
    use crate::report::case_of;

    #[test]
    fn connections_reach_every_queue_by_hash() {
        for queues in 2..=64 {
            let options = Options::vrss(queues, "".into());
            let missed = (1.0 - 1.0 / f64::from(queues)).powf(f64::from(options.connections[0]));
            assert!(f64::from(queues) * missed < 1e-5, "{queues}");
        }
    }

    #[test]
    fn a_silent_queue_in_one_interval_fails_the_proof() {
        let passes = |pairs: [f64; 3], silent: f64| {
            let plan = campaign(&Options::vrss(2, "".into())).points.remove(0).plan;
            let figures = |round, place: usize| {
                let is_silent = place == 2 && round == 1;
                let figures = [
                    ("vnic_queues", pairs[place]),
                    ("vnic_silent_queues", if is_silent { silent } else { 0.0 }),
                ];
                Values::from(figures.map(|(key, value)| (key.to_owned(), value)))
            };
            proof(&case_of(&plan, 4, figures)).unwrap().passed
        };
        assert!(passes([1.0, 2.0, 2.0], 0.0));
        assert!(!passes([1.0, 2.0, 2.0], 1.0));
        assert!(!passes([2.0, 2.0, 2.0], 0.0) && !passes([1.0, 2.0, 1.0], 0.0));
    }
}
