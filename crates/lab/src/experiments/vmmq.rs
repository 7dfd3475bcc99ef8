//! Dynamic VMMQ: one queue, against several that stay at their workers, against several whose entries move by load.
//!
//! The uplink is a fan-out group of so many packet sockets, the vNIC a TAP of as many queues. Each interval goes through four
//! phases of the same length, so that what is dynamic has to spread in each of them. It comes together between intervals: the
//! balancer looks back on 1.6 s.

use super::{Feature, MOVES, PLAIN, PROOF, Phase, rsc, sweep};
use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::Measure;
use crate::options::Options;
use crate::report::{Case, Check, plural};
use crate::statistics::Better;
use crate::topology::Topology;
use crate::validate::stepped;
use serde_json::json;
use std::time::Duration;

/// The arms, each on the one before it; the later two are called as the key `vmmq` has it.
const ARMS: [&str; 3] = ["one", "static", "dynamic"];

/// Next to nothing: a buffer of each connection at its begin.
const IDLE: Option<u64> = Some(1000);
/// Phases of an interval. Figures are those of the third one where their keys say nothing else.
const PHASES: &[Phase] = &[
    Phase { name: "idle_", bits_per_s: IDLE },
    Phase { name: "low_", bits_per_s: Some(100_000_000) },
    Phase { name: "", bits_per_s: None },
    Phase { name: "after_", bits_per_s: IDLE },
];
/// Between two intervals: by then what was spread is on one worker again, and connections go on after ports were opened anew.
const SETTLE: Duration = Duration::from_secs(2);

const SWITCH: Measure = Measure {
    key: "low_switch_run_s_per_s",
    improvement: "low_switch_cpu",
    label: "Switch at 100 Mb/s (processors)",
    scale: 1.0,
    decimals: 3,
    better: Better::Lower,
    equal_within: None,
};

pub(super) const MEASURES: &[Measure] = &[
    Measure { label: "Throughput at full load (Gb/s)", ..sweep::THROUGHPUT },
    // Not processors: an arm that carries more at full load would look worse.
    rsc::RECEIVING,
    SWITCH,
];

const FEATURE: &Feature = &Feature {
    name: "vmmq",
    title: "Dynamic VMMQ: one queue, several, and several by load",
    steps: true,
    measures: MEASURES,
    phases: PHASES,
    switch,
    proof: Some(proof),
    note: Some(
        "Each interval goes through four phases of a quarter each: idle, 100 Mb/s, full load, idle. The first quarter of a phase \
         is not measured: moves in it are counted, what they lost is not. Throughput, frames and all figures whose keys name no phase are those \
         of the full load. Workers in use are those that took at least 1 % of the frames.",
    ),
    ..PLAIN
};

/// `millrace validate vmmq`.
pub fn campaign(options: &Options) -> Campaign {
    let queues = plural(options.most_queues(), "queue");
    let labels = [plural(1, "queue"), format!("{queues}, static"), format!("{queues}, dynamic")];
    stepped(FEATURE, options, ARMS.into_iter().zip(labels), SETTLE)
}

/// Opened anew, a port has its entries spread over all its queues, wherever load had moved them.
fn switch(topology: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
    let one = json!({ "queues": 1, "vmmq": "static" });
    daemon.reopen(&one, &one)?;
    let several = json!({ "queues": topology.queues, "vmmq": arm });
    if arm == ARMS[0] { Ok(()) } else { daemon.reopen(&several, &several) }
}

/// By the queues there were, by what moved, and by how much was sent in the phases that are not to be full.
fn proof(case: &Case) -> Option<Check> {
    let of = |key: &str| -> Option<[f64; 3]> {
        let [one, still, dynamic] = ARMS.map(|arm| case.median(arm, key));
        Some([one?, still?, dynamic?])
    };
    let moved = |arm| -> Option<f64> {
        let keys = PHASES.iter().map(|phase| format!("{}{MOVES}", phase.name));
        keys.map(|key| case.total(arm, &key)).sum()
    };
    let (low_workers, workers) = (of("low_workers_in_use")?, of("workers_in_use")?);
    // Next to nothing without dynamic queues: a ratio would be in the hundreds and say nothing.
    let at_rest = of("idle_switch_run_s_per_s")?;
    let (idle, low) = (of("idle_throughput_bps")?, of("low_throughput_bps")?);
    let (full, after) = (of("throughput_bps")?, of("after_throughput_bps")?);
    let [one, still, dynamic] = of("uplink_queues")?;
    let alike = of("vnic_queues")? == [one, still, dynamic];
    let [never, neither, by_load] = ARMS.map(moved);
    let moves = [never?, neither?, by_load?];
    let idle_is = idle.iter().zip(&low).all(|(idle, low)| *idle < 0.01 * low);
    let low_is = low.iter().all(|low| (50e6..150e6).contains(low));
    let full_is = full.iter().zip(&low).all(|(full, low)| *full > 2.0 * low);
    // What connections had in their buffers is still on its way.
    let after_is = full.iter().zip(&after).all(|(full, after)| *after < 0.75 * full);
    let phases = idle_is && low_is && full_is && after_is;
    let moved = matches!(moves, [0.0, 0.0, by_load] if by_load > 0.0);
    let each = |figures: [f64; 3]| figures.map(|one| format!("{one:.0}")).join(", ");
    let megabits = |rates: [f64; 3]| rates.map(|rate| format!("{:.1}", rate / 1e6)).join(", ");
    Some(Check {
        name: PROOF.into(),
        passed: one == 1.0 && still > 1.0 && dynamic == still && alike && moved && phases,
        seen: format!(
            "queues at the uplink {one}, {still}, {dynamic}; moves by load {}; workers in use at 100 Mb/s {}, at full load {}; \
             processors of the switch when idle {}; Mb/s when idle {}, at 100 Mb/s {}, at full load {}, idle again {}",
            each(moves),
            each(low_workers),
            each(workers),
            at_rest.map(|used| format!("{used:.4}")).join(", "),
            megabits(idle),
            megabits(low),
            megabits(full),
            megabits(after),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Values;
    use crate::experiments::case_of;

    /// What is sent in the phases, in bits a second.
    const RATES: [f64; 4] = [0.0, 1e8, 1e9, 0.0];

    /// Whether a case passes whose arms had so many queues and moves, and were sent so much in the four phases.
    fn passes(queues: [f64; 3], moves: [f64; 3], rates: [f64; 4]) -> bool {
        let plan = campaign(&Options::queued("".into())).points.remove(0).experiment;
        let figures = |_, place: usize| {
            let figures = [
                ("uplink_queues", queues[place]),
                ("vnic_queues", queues[place]),
                ("low_workers_in_use", 1.0),
                ("workers_in_use", 2.0),
                ("idle_switch_run_s_per_s", 0.001),
                ("idle_throughput_bps", rates[0]),
                ("low_throughput_bps", rates[1]),
                ("throughput_bps", rates[2]),
                ("after_throughput_bps", rates[3]),
                ("idle_moves", 0.0),
                ("low_moves", moves[place]),
                ("moves", 0.0),
                ("after_moves", 0.0),
            ];
            Values::from(figures.map(|(key, value)| (key.to_owned(), value)))
        };
        proof(&case_of(&plan, 4, figures)).unwrap().passed
    }

    #[test]
    fn only_what_is_dynamic_moves_and_every_phase_is_what_it_is_called() {
        assert!(passes([1.0, 2.0, 2.0], [0.0, 0.0, 5.0], RATES));
        assert!(!passes([1.0, 2.0, 2.0], [0.0, 0.0, 0.0], RATES), "nothing moves");
        assert!(!passes([1.0, 2.0, 2.0], [0.0, 1.0, 5.0], RATES), "what is static moves");
        assert!(!passes([1.0, 1.0, 2.0], [0.0, 0.0, 5.0], RATES), "one queue is not several");
        let dead = [
            ("a buffer a second is not idle", 0, 8.4e6),
            ("100 Mb/s that are not reached", 1, 1e6),
            ("100 Mb/s that are not a limit", 1, 1e9),
            ("full load that is limited", 2, 1e8),
            ("a sender that does not stop", 3, 1e9),
        ];
        for (why, phase, rate) in dead {
            let mut rates = RATES;
            rates[phase] = rate;
            assert!(!passes([1.0, 2.0, 2.0], [0.0, 0.0, 5.0], rates), "{why}");
        }
    }
}
