//! iSCSI between two programs, without a guest: through two TAP ports of a switch, or over a veth
//! between the two.
//!
//! The programs are run by `crate::storage::Programs`. The veth shows what the kernel alone does.
//! The third arm shows how much of the difference is the wake-up of the worker, because a worker
//! that polls all the time never sleeps.

use crate::campaign::Campaign;
use crate::experiment::{Description, Experiment, MakeSite, Proof, proven};
use crate::measure::{Measure, THROUGHPUT};
use crate::options::Options;
use crate::plan::Arm;
use crate::report::{Case, Check};
use crate::storage::Programs;
use crate::storage::iscsi::{self, ARMS, IscsiArm};

/// Largest difference from the veth, as a fraction, that counts as none.
const EQUAL_WITHIN: Option<f64> = Some(0.1);

/// Throughput of sequential reads.
const SEQUENTIAL: Measure = Measure {
    key: iscsi::SEQUENTIAL,
    improvement: "sequential",
    label: "128 KiB x 32 (MB/s)",
    equal_within: EQUAL_WITHIN,
    ..THROUGHPUT
};
/// Random reads, 32 at a time.
const RANDOM: Measure = Measure {
    key: iscsi::RANDOM,
    improvement: "random_32",
    label: "Random 4 KiB x 32 (1/s)",
    scale: 1.0,
    decimals: 0,
    ..SEQUENTIAL
};
/// Random reads, one at a time.
const ONE_BY_ONE: Measure = Measure {
    key: iscsi::ONE_BY_ONE,
    improvement: "random_1",
    label: "Random 4 KiB x 1 (1/s)",
    ..RANDOM
};

/// The columns.
pub const MEASURES: &[Measure] = &[SEQUENTIAL, RANDOM, ONE_BY_ONE];

/// `millrace validate iscsi`.
#[derive(Debug)]
pub(crate) struct Iscsi;

impl Experiment for Iscsi {
    fn description(&self) -> Description {
        Description {
            name: "iscsi",
            title: "iSCSI between two programs: through the switch against a direct veth",
            measures: MEASURES,
            note: Some(
                "Reads of a LUN that is in the page cache, by one session: `x 32` and `x 1` are how many requests are outstanding. The \
                 hoped-for result is no difference above 10 %. A worker with poll = \"always\" never sleeps, so it takes a whole \
                 processor.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        ARMS.map(|arm| Arm { name: arm.name.into(), label: arm.label.into() }).into()
    }

    fn site(&self) -> Option<MakeSite> {
        Some(Programs::make)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate iscsi`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Iscsi, options)
}

/// Proves that the reads came over each arm's own link.
fn proof(case: &Case) -> Option<Check> {
    let (mut passed, mut told) = (true, Vec::new());
    for IscsiArm { name, label, .. } in &ARMS {
        let [own, other] = [case.total(name, "own_bytes")?, case.total(name, "other_bytes")?];
        passed &= own > 1000.0 * other;
        told.push(format!(
            "{label}: {:.0} MB, and {:.3} MB over the other link",
            own / 1e6,
            other / 1e6
        ));
    }
    proven(passed, told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    #[test]
    fn what_came_over_another_link_fails_the_proof() {
        let passes = |other: [f64; 3]| {
            let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
            let plan = Iscsi.plan(1500, Duration::from_secs(1), stop);
            let figures = [("own_bytes", [1e9; 3]), ("other_bytes", other)];
            let values = |place: usize| figures.map(|(key, of)| (key.to_owned(), of[place]));
            proof(&case_of(&plan, 2, |_, place| Values::from(values(place)))).unwrap().passed
        };
        assert!(passes([0.0, 120.0, 0.0]));
        assert!(!passes([0.0, 1e9, 0.0]) && !passes([0.0, 0.0, 2e6]));
    }
}
