//! Direct storage: a guest reads and writes a LUN by two paths, each pinned to a member of a team,
//! and a member is pulled.
//!
//! The hosts are in `crate::storage`: an interval runs each kind of request for a while, and then
//! pulls a member under a copy of which every byte is compared.

use crate::campaign::Campaign;
use crate::experiment::{Description, Experiment, MakeSite, Proof};
use crate::measure::{Measure, THROUGHPUT};
use crate::options::Options;
use crate::plan::Arm;
use crate::report::{Case, Check};
use crate::storage::StorageSite;
use crate::storage::paths::{PATHS, Paths};
use statistics::Better;

const fn rate(key: &'static str, label: &'static str) -> Measure {
    Measure { key, improvement: key, label, ..THROUGHPUT }
}
const fn requests(key: &'static str, label: &'static str) -> Measure {
    Measure { key, improvement: key, label, scale: 1.0, decimals: 0, ..THROUGHPUT }
}

/// The columns.
pub const MEASURES: &[Measure] = &[
    rate("read_bps", "Reads of 128 KiB (MB/s)"),
    requests("random_reads_per_s", "Random reads of 4 KiB (1/s)"),
    rate("write_bps", "Writes of 128 KiB (MB/s)"),
    requests("random_writes_per_s", "Random writes of 4 KiB (1/s)"),
    Measure { better: Better::Lower, ..requests("path_change_ms", "Path change (ms)") },
];

/// `millrace validate storage`.
#[derive(Debug)]
pub(crate) struct Storage;

impl Experiment for Storage {
    fn description(&self) -> Description {
        Description {
            name: "storage",
            title: "Direct storage: iSCSI with multipath over two members, MTU 1500 and 9000, 1 and 4 queue pairs",
            steps: true,
            measures: MEASURES,
            note: Some(
                "Four programs (ioping) each make one request at a time, bypassing the guest's page cache; the LUN is in the page cache \
                 of the target's machine. The path change is the longest time of a 4 KiB request while one of the two members, in turn, \
                 was pulled; it should be below a second. Meanwhile the guest copies one part of the LUN to another, and the copies in \
                 the target's file are compared. The arms form a ring: jumbo frames, then queue pairs, then MTU 1500 again, so that all \
                 steps together compare four queue pairs with one at MTU 1500. A path is one connection, which uses one queue pair.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        PATHS.map(|paths| Arm { name: paths.name.into(), label: paths.label.into() }).into()
    }

    fn site(&self) -> Option<MakeSite> {
        Some(StorageSite::make)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate storage`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Storage, options)
}

/// Proves that bytes were copied, no request failed and no byte was wrong, that the other path went on, that frames
/// had each arm's size (with 14 bytes of Ethernet header), and that both vNICs used the arm's queue
/// pairs.
fn proof(case: &Case) -> Option<Check> {
    let sum = |key: &str| -> f64 { PATHS.iter().filter_map(|one| case.total(one.name, key)).sum() };
    let [copied, errors, wrong] = ["copied_bytes", "io_errors", "wrong_copies"].map(sum);
    let mut passed = errors + wrong == 0.0 && copied > 0.0;
    let mut told = Vec::new();
    for Paths { name, label, mtu, pairs } in &PATHS {
        let Some(figures) = case.arms.get(*name).filter(|arm| arm.intervals > 0) else { continue };
        let (size, largest) = (figures.median("frame_bytes")?, f64::from(mtu + 14));
        passed &= size <= largest
            && size > largest / 4.0
            && figures.figures.get("carried_bytes")?.min > 0.0;
        passed &= case.column(name, "queue_pairs").iter().all(|seen| *seen == f64::from(*pairs));
        told.push(format!("{size:.0} bytes per frame with {label}"));
    }
    let seen = format!(
        "{} members pulled; {:.0} MB copied, {wrong:.0} of the copies wrong, {errors:.0} requests failed; {}",
        case.samples.len(),
        copied / 1e6,
        told.join(", ")
    );
    Some(Check { name: "Two paths, and one of them pulled".into(), passed, seen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    /// Two rounds in which all was as it should be, but for one value of the last arm.
    fn checked(spoilt: (&str, f64)) -> Check {
        checked_with(&|place, values| {
            if place == 1 {
                values.insert(spoilt.0.into(), spoilt.1);
            }
        })
    }

    /// Two rounds with what `spoil` does to the values of each arm, by its place.
    fn checked_with(spoil: &dyn Fn(usize, &mut Values)) -> Check {
        let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
        let plan = Storage.plan(1500, Duration::from_secs(1), stop);
        let case = case_of(&plan, 2, |_, place| {
            let mut values = Values::from([
                ("io_errors".into(), 0.0),
                ("wrong_copies".into(), 0.0),
                ("copied_bytes".into(), 1e6),
                ("frame_bytes".into(), f64::from(PATHS[place].mtu) - 100.0),
                ("queue_pairs".into(), f64::from(PATHS[place].pairs)),
                ("carried_bytes".into(), 1e6),
            ]);
            spoil(place, &mut values);
            values
        });
        proof(&case).unwrap()
    }

    #[test]
    fn an_error_a_wrong_byte_and_a_path_that_carries_nothing_fail_the_proof() {
        let whole = checked(("wrong_copies", 0.0));
        assert!(
            whole.passed && whole.seen.starts_with("8 members pulled; 8 MB copied"),
            "{}",
            whole.seen
        );
        let nothing = checked_with(&|_, values| {
            values.insert("copied_bytes".into(), 0.0);
        });
        assert!(!nothing.passed, "{}", nothing.seen);
        for spoilt in [
            ("io_errors", 1.0),
            ("wrong_copies", 1.0),
            ("frame_bytes", 1400.0),
            ("carried_bytes", 0.0),
            ("queue_pairs", 4.0),
        ] {
            let found = checked(spoilt);
            assert!(!found.passed, "{spoilt:?}: {}", found.seen);
        }
    }
}
