//! Dynamic VMMQ: one queue, against several static ones, against several with entries that move
//! by load.
//!
//! The uplink is a fan-out group of packet sockets, and the vNIC a TAP with the same number of
//! queues. Each interval has four phases, so that dynamic entries must spread in the third, and
//! have time to move back together in the last.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::measure::{Measure, RECEIVING, THROUGHPUT_GBPS};
use crate::options::Options;
use crate::plan::{MOVES, Phase};
use crate::report::{Case, Check, plural};
use crate::topology::Topology;
use serde_json::json;

/// The arms, which are cumulative steps; the later two are values of the key `vmmq`.
const ARMS: [&str; 3] = ["one", "static", "dynamic"];

/// Limit of an idle phase in bits per second; each connection still sends a buffer at its
/// beginning.
const IDLE: Option<u64> = Some(1000);
/// Seconds that the balancer needs to move entries back together: it averages over 1.6 s, moved
/// entries rest for one second, and connections first empty their buffers.
const COMING_TOGETHER: f64 = 2.8;

/// Returns the phases of an interval. Figures without a phase in their key are of the third.
fn phases(seconds: f64) -> Vec<Phase> {
    let phase = |(keys, label, bits_per_s, seconds): (&str, &str, _, _)| Phase {
        keys: keys.into(),
        label: label.into(),
        bits_per_s,
        seconds,
    };
    let all = [
        ("idle_", "Idle", IDLE, seconds / 2.0),
        ("low_", "100 Mb/s", Some(100_000_000), seconds),
        ("full_", "Full load", None, seconds),
        ("after_", "Idle again", IDLE, COMING_TOGETHER),
    ];
    all.map(phase).into()
}

const SWITCH: Measure = Measure {
    key: "low_switch_run_s_per_s",
    improvement: "low_switch_cpu",
    label: "Switch at 100 Mb/s (processors)",
    decimals: 3,
    ..RECEIVING
};

pub(super) const MEASURES: &[Measure] = &[
    Measure { label: "Throughput at full load (Gb/s)", ..THROUGHPUT_GBPS },
    // Per GiB rather than in processors: an arm that carries more would otherwise look worse.
    RECEIVING,
    SWITCH,
];

/// `millrace validate vmmq`.
#[derive(Debug)]
pub(crate) struct Vmmq;

impl Experiment for Vmmq {
    fn description(&self) -> Description {
        Description {
            name: "vmmq",
            title: "Dynamic VMMQ: one queue, several static ones, several balanced by load",
            steps: true,
            measures: MEASURES,
            note: Some(
                "Each interval has four phases: idle, 100 Mb/s, full load, idle. The table of phases has their lengths. Losses, resent \
                 segments and moves are counted from a phase's start (keys such as `full_lost_frames`). All other figures cover its last \
                 three quarters; keys that name no phase belong to the full load. Workers in use are those that took at least 1 % of the \
                 frames; with one queue the second worker takes the guest's acknowledgements.",
            ),
            ..Description::PLAIN
        }
    }

    /// Reopens both ports, which spreads the entries over all queues again, wherever load had moved
    /// them.
    fn switch(
        &self,
        topology: &mut Topology,
        daemon: &mut Daemon,
        arm: &str,
    ) -> Result<(), LabError> {
        let one = json!({ "queues": 1, "vmmq": "static" });
        daemon.reopen(&one, &one)?;
        let several = json!({ "queues": topology.queues, "vmmq": arm });
        if arm == ARMS[0] { Ok(()) } else { daemon.reopen(&several, &several) }
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate vmmq`.
pub fn campaign(options: &Options) -> Campaign {
    let queues = plural(options.most_queues(), "queue");
    let labels = [plural(1, "queue"), format!("{queues}, static"), format!("{queues}, dynamic")];
    Campaign::reopening(
        &Vmmq,
        options,
        ARMS.into_iter().zip(labels),
        phases(options.interval.as_secs_f64()),
    )
}

/// Proves the arms by the number of queues, by the moves, and by the throughput of the phases that
/// are limited.
fn proof(case: &Case) -> Option<Check> {
    let each = |figure: &dyn Fn(&str) -> Option<f64>| -> Option<[f64; 3]> {
        let [one, still, dynamic] = ARMS.map(figure);
        Some([one?, still?, dynamic?])
    };
    let of = |key: &str| each(&|arm| case.median(arm, key));
    let moves = each(&|arm| {
        let keys = case.phases.iter().map(|phase| format!("{}{MOVES}", phase.keys));
        keys.map(|key| case.total(arm, &key)).sum()
    })?;
    let rate = |phase: &Phase| of(&phase.key("throughput_bps"));
    let rates: Vec<[f64; 3]> = case.phases.iter().map(rate).collect::<Option<_>>()?;
    let [idle, low, full, after] = <[[f64; 3]; 4]>::try_from(rates).ok()?;
    let [one, still, dynamic] = of("uplink_queues")?;
    let alike = of("vnic_queues")? == [one, still, dynamic];
    // Buffered bytes are still on their way when the last phase begins.
    let as_called = |arm: usize| {
        idle[arm] < 0.01 * low[arm]
            && (50e6..150e6).contains(&low[arm])
            && full[arm] > 2.0 * low[arm].max(after[arm])
    };
    let phases = (0..ARMS.len()).all(as_called);
    let moved = matches!(moves, [0.0, 0.0, by_load] if by_load > 0.0);
    let seen = format!(
        "queues at the uplink {one}, {still}, {dynamic}; moves by load {}; the phases were {}what they are called",
        moves.map(|count| count.to_string()).join(", "),
        if phases { "" } else { "not " }
    );
    proven(one == 1.0 && still > 1.0 && dynamic == still && alike && moved && phases, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Values;
    use crate::report::case_of;

    /// What is sent in the phases, in bits a second.
    const RATES: [f64; 4] = [0.0, 1e8, 1e9, 0.0];

    /// Whether a case passes with these queues and moves of its arms, and these rates in the four
    /// phases.
    fn passes(queues: [f64; 3], moves: [f64; 3], rates: [f64; 4]) -> bool {
        let plan = campaign(&Options::vmmq(2, "".into())).points.remove(0).plan;
        let figures = |_, place: usize| {
            let figures = [
                ("uplink_queues", queues[place]),
                ("vnic_queues", queues[place]),
                ("idle_throughput_bps", rates[0]),
                ("low_throughput_bps", rates[1]),
                ("throughput_bps", rates[2]),
                ("after_throughput_bps", rates[3]),
                ("idle_moves", 0.0),
                ("low_moves", moves[place]),
                ("full_moves", 0.0),
                ("after_moves", 0.0),
            ];
            Values::from(figures.map(|(key, value)| (key.to_owned(), value)))
        };
        proof(&case_of(&plan, 4, figures)).unwrap().passed
    }

    /// Of six minutes and of 90 s, so that there is time to open ports anew.
    #[test]
    fn it_measures_for_less_than_five_minutes_and_a_quick_one_for_less_than_78_s() {
        use std::time::Duration;
        let length = |options: Options| -> Duration {
            campaign(&options).points.iter().map(|point| point.plan.length()).sum()
        };
        let options = Options::vmmq(2, "".into());
        assert!(length(options.clone()) < Duration::from_secs(300));
        assert!(length(options.quick()) < Duration::from_secs(78));
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
