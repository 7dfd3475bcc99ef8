//! Live migration: a guest moves between two hosts, there and back, over MTU 1500 and 9000 and by
//! one connection and four.
//!
//! A peer is a guest between two hosts with OVS-DPDK, if that is installed. `crate::migration` has
//! the hosts: an interval is one migration, under pings and a stream of which every byte is
//! compared.

use crate::campaign::{Campaign, Point};
use crate::experiment::{Description, Experiment, MakeSite, Proof};
use crate::measure::{Measure, THROUGHPUT};
use crate::migration::MigrationSite;
use crate::migration::transport::{PEER, TRANSPORTS, Transport, transports};
use crate::options::{Options, Quick};
use crate::plan::{Arm, Plan};
use crate::report::{Case, Check};
use statistics::{Better, FEWEST_PAIRS, Summary};
use std::path::PathBuf;

impl Options {
    /// Returns the defaults of `validate migration`, with 78 migrations, and of `validate storage`,
    /// with 52 pulls. The guest is in the given directory.
    pub fn migration(guest: PathBuf, program: PathBuf) -> Options {
        Options {
            guest: Some(guest),
            repetitions: REPETITIONS,
            quick: Quick { repetitions: FEWEST_PAIRS, ..Quick::default() },
            ..Options::new(program)
        }
    }
}

/// Repetitions by default: enough for a verdict on all figures together.
pub const REPETITIONS: usize = 13;
/// Ethernet header of a frame, in bytes.
const ETHERNET: f64 = 14.0;

const TOTAL: Measure = Measure {
    key: "total_s",
    improvement: "total",
    label: "Total (s)",
    scale: 1.0,
    decimals: 2,
    better: Better::Lower,
    equal_within: None,
};
const RATE: Measure =
    Measure { key: "migration_bps", improvement: "rate", label: "Rate (MB/s)", ..THROUGHPUT };
const fn ms(key: &'static str, improvement: &'static str, label: &'static str) -> Measure {
    Measure { key, improvement, label, decimals: 0, ..TOTAL }
}

/// The columns.
pub const MEASURES: &[Measure] = &[
    TOTAL,
    RATE,
    Measure { key: "cpu_s_per_gib", improvement: "cpu", label: "CPU s/GiB", ..TOTAL },
    ms("downtime_ms", "downtime", "Downtime (ms)"),
    ms("ping_outage_ms", "ping_outage", "Ping outage (ms)"),
    Measure { decimals: 2, ..ms("outage_ratio", "outage_ratio", "Outage/downtime") },
    ms("gap_ms", "gap", "Gap of frames (ms)"),
];

/// `millrace validate migration`.
#[derive(Debug)]
pub(crate) struct Migration;

impl Experiment for Migration {
    fn description(&self) -> Description {
        Description {
            name: "migration",
            title: "Live migration: MTU 1500 and 9000, 1 and 4 channels",
            steps: true,
            measures: MEASURES,
            note: Some(
                "An interval is one migration, in alternating directions, with load before and after it. The arms form a ring: \
                 jumbo frames, then channels (QEMU's multifd), then MTU 1500 again, so that all steps together compare four channels \
                 with one at MTU 1500. Total, rate and downtime are QEMU's figures. CPU s/GiB is the processor time of both switches, \
                 both QEMUs with the guest, and the kernel per GiB sent. The ping outage is the longest time without an answer, at one \
                 request every 5 ms. The gap of frames is the time from the last frame that the source's switch delivered to the guest \
                 to the first one that the destination's delivered. The switch's part of the gap excludes the time from QEMU's STOP to \
                 RESUME; it includes at most two intervals between pings, and is negative if the first frame arrived before RESUME. \
                 Between Millrace and OVS-DPDK the switch is the only difference: QEMU, kernel, hosts and bridge are alike, the others are \
                 idle, and memory bypasses both switches, over a direct wire from the host to the bridge, at MTU 1500 by 1 channel. The polling \
                 threads of OVS may sleep 0.5 ms (pmd-maxsleep). No frames are captured in these arms, so they have no gap.",
            ),
            ..Description::PLAIN
        }
    }

    fn site(&self) -> Option<MakeSite> {
        Some(MigrationSite::make)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate migration`.
pub fn campaign(options: &Options) -> Campaign {
    let arms = transports().map(|one| Arm { name: one.name.into(), label: one.label.into() });
    let plain = Migration.plan(options.mtu, options.interval, options.stop());
    let plan = Plan { arms: arms.collect(), steps: TRANSPORTS.len(), ..plain };
    Campaign::new(&Migration, vec![Point::bulk(&Migration, &plan, 1)])
}

/// Checks that no byte of the stream was wrong or missing, that no ping was answered twice, and
/// that memory crossed with each arm's frame size, channels and path.
fn proof(case: &Case) -> Option<Check> {
    let own = || transports().filter(|one| one.name != PEER);
    let sum = |key: &str| -> f64 { own().filter_map(|one| case.total(one.name, key)).sum() };
    let [wrong, missing, twice] = ["wrong_bytes", "missing_bytes", "pings_twice"].map(sum);
    let [received, answered] = ["received_bytes", "pings_answered"].map(sum);
    let (mut told, mut migrations, mut as_labelled) = (Vec::new(), 0, true);
    for Transport { name, label, mtu, channels, .. } in transports() {
        let Some(figures) = case.arms.get(name).filter(|arm| arm.intervals > 0) else { continue };
        migrations += if name == PEER { 0 } else { figures.intervals };
        let size = figures.median("frame_bytes")?;
        let multifd = figures.figures.get("multifd_bytes")?;
        let largest = f64::from(mtu) + ETHERNET;
        as_labelled &= size <= largest && size > largest / 4.0;
        as_labelled &= if channels > 1 { multifd.min > 0.0 } else { multifd.max == 0.0 };
        // The rest is the guest's stream, which does not yet reach the destination.
        as_labelled &= figures.figures.get("crossed_share")?.min > 0.5;
        told.push(format!("{size:.0} bytes per frame of memory in {label}"));
    }
    let all = case.samples.iter().filter_map(|sample| sample.values.get("switch_ms").copied());
    let part = Summary::of(&all.collect::<Vec<_>>())?;
    let seen = format!(
        "{migrations} migrations; {:.0} MB of the stream came back, {wrong:.0} bytes wrong and {missing:.0} missing; {answered:.0} pings answered, \
         {twice:.0} of them twice; the switch's part of the gap {:.1} ms at the median, {:.1} at most; {}",
        received / 1e6,
        part.median,
        part.max,
        told.join(", ")
    );
    let passed = wrong + missing + twice == 0.0 && received > 0.0 && answered > 0.0 && as_labelled;
    Some(Check { name: "Stream and pings during migrations".into(), passed, seen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    /// Returns two rounds of migrations as their arms require. `spoil` changes the values of an arm
    /// by its place.
    fn moved(spoil: impl Fn(usize, &mut Values)) -> Case {
        let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
        let options = Options { repetitions: 2, ..Options::new("unused".into()) };
        let mut plan = campaign(&options).points.remove(0).plan;
        (plan.stop, plan.interval) = (stop, Duration::from_secs(1));
        case_of(&plan, 2, |_, place| {
            let Transport { mtu, channels, .. } = transports().nth(place).unwrap();
            let mut values = Values::from([
                ("received_bytes".into(), 1e6),
                ("wrong_bytes".into(), 0.0),
                ("missing_bytes".into(), 0.0),
                ("pings_answered".into(), 400.0),
                ("pings_twice".into(), 0.0),
                ("switch_ms".into(), 5.0),
                ("ping_outage_ms".into(), if place == 5 { 200.0 } else { 100.0 }),
                ("frame_bytes".into(), f64::from(mtu) - 60.0),
                ("multifd_bytes".into(), if channels > 1 { 1e8 } else { 0.0 }),
                ("crossed_share".into(), 0.98),
            ]);
            spoil(place, &mut values);
            values
        })
    }

    #[test]
    fn another_switch_is_no_step_and_is_held_against_the_same_without_steps() {
        let case = moved(|_, _| ());
        let against = &case.peers[PEER]["ping_outage"];
        assert_eq!((case.steps.len(), against.ratio, against.pairs), (3, 0.5, 2));
        assert_eq!(case.comparisons["ping_outage"].ratio, 1.0, "of the steps alone");
    }

    #[test]
    fn a_byte_or_a_ping_too_many_and_an_arm_that_is_another_fail_the_proof() {
        let checked = |spoil: &dyn Fn(usize, &mut Values)| proof(&moved(spoil)).unwrap();
        let whole = checked(&|_, _| ());
        assert!(whole.passed && whole.seen.starts_with("10 migrations; 10 MB"), "{}", whole.seen);
        for (key, value) in [
            ("wrong_bytes", 1.0),
            ("missing_bytes", 1.0),
            ("pings_twice", 1.0),
            ("frame_bytes", 8000.0),
            ("multifd_bytes", 0.0),
            ("crossed_share", 0.0),
        ] {
            let spoilt = checked(&|place, values| {
                if place == 3 {
                    values.insert(key.into(), value);
                }
            });
            assert!(!spoilt.passed, "{key}: {}", spoilt.seen);
        }
        for key in ["received_bytes", "pings_answered"] {
            let silent = checked(&|_, values| {
                values.insert(key.into(), 0.0);
            });
            assert!(!silent.passed, "of nothing nothing is proven: {}", silent.seen);
        }
    }
}
