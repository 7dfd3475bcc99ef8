//! Two paths at the same time, one of them with jumbo frames: which one is which?
//!
//! The question is from a document on live migration over two NICs, which shows the rates of both
//! and leaves the answer to the reader. Here the path with jumbo frames is drawn by lot, its arm is
//! called by its letter, and the report answers by the frames on the wire. The hosts are
//! `crate::two_paths`.

use crate::experiment::{Description, Experiment, MakeSite, Proof};
use crate::measure::{Measure, THROUGHPUT_GBPS};
use crate::plan::Arm;
use crate::report::{Case, Check};
use crate::topology::LARGEST_STANDARD_FRAME;
use crate::two_paths::{LABELS, TwoPaths};
use std::hash::{BuildHasher, RandomState};

/// Name of the arm whose path has jumbo frames.
const JUMBO: &str = "jumbo";
/// Name of the other one's arm.
const STANDARD: &str = "standard";
/// Key of the mean frame.
const FRAME: &str = "frame_bytes_on_the_wire";

/// The columns.
const MEASURES: &[Measure] = &[
    THROUGHPUT_GBPS,
    Measure {
        key: FRAME,
        improvement: "frame",
        label: "Bytes/frame on the wire",
        scale: 1.0,
        decimals: 0,
        ..THROUGHPUT_GBPS
    },
];

/// `millrace validate jumbo --two-paths`.
#[derive(Debug)]
pub(crate) struct WhichIsWhich;

impl Experiment for WhichIsWhich {
    fn description(&self) -> Description {
        Description {
            name: "jumbo",
            title: "Two paths, jumbo frames on one: which one is which?",
            measures: MEASURES,
            note: Some(
                "Both paths carry their load at the same time, each with this number of connections, so a path's rate is what it gets beside \
                 the other. The check names the path with jumbo frames.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        let [one, other] = LABELS;
        // A hash of nothing, by keys that differ from run to run.
        let is_first = RandomState::new().hash_one(()).is_multiple_of(2);
        let [jumbo, standard] = if is_first { [one, other] } else { [other, one] };
        let arm = |name: &str, label: &str| Arm { name: name.into(), label: label.into() };
        vec![arm(JUMBO, jumbo), arm(STANDARD, standard)]
    }

    fn site(&self) -> Option<MakeSite> {
        Some(TwoPaths::make)
    }

    fn has_way(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Answers the question by the frames on the wire.
fn proof(case: &Case) -> Option<Check> {
    let path = |arm: &str| {
        let figures = case.arms.get(arm)?;
        let (bytes, rate) = (figures.median(FRAME)?, figures.median("throughput_bps")?);
        let words = format!("{bytes:.0} bytes per frame on the wire and {:.2} Gb/s", rate / 1e9);
        Some((figures.label.as_str(), bytes, words))
    };
    let ((jumbo, large, has), (other, small, beside)) = (path(JUMBO)?, path(STANDARD)?);
    let seen = format!("{jumbo} has the jumbo frames, {has}; {other} has {beside}");
    let passed = large > LARGEST_STANDARD_FRAME && small <= LARGEST_STANDARD_FRAME;
    Some(Check { name: "Which one is which".into(), passed, seen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    #[test]
    fn the_answer_is_by_frames_and_names_the_path() {
        let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
        let plan = WhichIsWhich.plan(9000, Duration::from_secs(1), stop);
        let check = |frames: [f64; 2]| {
            let figures = |_, place: usize| {
                let (frame, rate) = (frames[place], [3e9, 1e9][place]);
                Values::from([(FRAME.to_owned(), frame), ("throughput_bps".to_owned(), rate)])
            };
            proof(&case_of(&plan, 2, figures)).unwrap()
        };
        let right = check([9000.0, 1510.0]);
        let named = format!("{} has the jumbo frames, 9000 bytes", plan.arms[0].label);
        assert!(right.passed && right.seen.starts_with(&named), "{}", right.seen);
        assert!(!check([1510.0, 9000.0]).passed && !check([9000.0, 9000.0]).passed);
    }

    #[test]
    fn each_path_is_the_one_with_jumbo_frames_in_some_runs() {
        let drawn: Vec<String> =
            (0..200).map(|_| WhichIsWhich.arms(9000).remove(0).label).collect();
        assert!(LABELS.iter().all(|label| drawn.iter().any(|one| one == label)));
    }
}
