//! A table of the results of each kind of fault.

use super::Fault;
use std::collections::BTreeMap;
use std::fmt;

/// The results of one fault, or of all faults of a kind.
#[derive(Clone, Default)]
pub(super) struct Row {
    pub(super) times: usize,
    pub(super) pings: usize,
    pub(super) lost: usize,
    /// Longest time between two answers, in seconds.
    pub(super) longest: f64,
    pub(super) bytes: usize,
    /// Number of revisions that were rolled out completely.
    pub(super) applied: usize,
    /// Number of hosts without the revision in force when the fault ended.
    pub(super) late: usize,
    pub(super) moves: usize,
    pub(super) double_owners: usize,
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.times += other.times;
        self.pings += other.pings;
        self.lost += other.lost;
        self.longest = self.longest.max(other.longest);
        self.bytes += other.bytes;
        self.applied += other.applied;
        self.late += other.late;
        self.moves += other.moves;
        self.double_owners += other.double_owners;
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { times, pings, lost, longest, bytes, applied, late, moves, double_owners } = self;
        let mib = bytes >> 20;
        write!(
            out,
            "{times} | {pings} | {lost} | {longest:.2} | {mib} | {applied} | {late} | {moves} | {double_owners}"
        )
    }
}

#[derive(Default)]
pub(super) struct Table(BTreeMap<Fault, Row>);

impl Table {
    pub(super) fn add(&mut self, fault: Fault, row: &Row) {
        self.0.entry(fault).or_default().add(row);
    }

    pub(super) fn print(&self) {
        println!(
            "| fault | times | pings | lost | longest gap (s) | MiB checked | revisions applied | hosts late | claims moved | \
             double owners |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        let mut all = Row::default();
        for (fault, row) in &self.0 {
            println!("| {} | {row} |", fault.name());
            all.add(row);
        }
        println!("| all | {all} |");
    }
}
