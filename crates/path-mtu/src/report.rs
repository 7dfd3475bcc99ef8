//! What a check found, as text and as JSON.

use crate::judge::{Finding, Observation};
use control::Problem;
use serde::Serialize;
use std::fmt::Write;

/// Hosts up to which the matrix is printed; of more there are too many columns.
const COLUMNS: usize = 16;

/// A host that was checked.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// For people.
    pub name: String,
    /// Where its responder listens.
    pub address: String,
    /// The device its first probes left by; empty: not known.
    pub interface: String,
    /// Its MTU; 0: not known.
    pub mtu: u16,
}

/// A check that probed some pairs only.
#[derive(Clone, Debug, Serialize)]
pub struct Sampled {
    /// Peers of each host.
    pub peers: usize,
    /// What pairs were drawn by.
    pub seed: u64,
    /// The probability that a fault of a single pair was missed.
    pub missed_one: f64,
    /// That a fault of ten pairs was.
    pub missed_ten: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Nothing was found.
    pub healthy: bool,
    /// The MTU that every direction has to carry.
    pub wanted: u16,
    /// Absent: every pair was probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// In the order given.
    pub hosts: Vec<Checked>,
    /// One for each direction probed.
    pub directions: Vec<Observation>,
    /// What limits, the most important first.
    pub findings: Vec<Finding>,
    /// Hosts that could not be checked.
    pub unchecked: Vec<Problem>,
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let (hosts, directions) = (self.hosts.len(), self.directions.len());
        let mut text = format!("{hosts} hosts, {directions} directions, MTU {}\n", self.wanted);
        if let Some(Sampled { peers, seed, missed_one, missed_ten }) = &self.sampled {
            let _ = writeln!(
                text,
                "sampled: {peers} peers a host (seed {seed}). A fault of a host, a port or a link between groups is not \
                 missed; one of a single pair is with probability {missed_one:.3}, of ten pairs with {missed_ten:.3}"
            );
        }
        text += &self.matrix();
        for problem in self.findings.iter().map(|finding| &finding.problem).chain(&self.unchecked) {
            let _ = writeln!(text, "{problem}");
        }
        if self.healthy {
            text += "nothing found: every direction carries the MTU, and no device sends more\n";
        }
        text
    }

    /// What each direction carries: rows send, columns receive.
    fn matrix(&self) -> String {
        let count = self.hosts.len();
        if count > COLUMNS {
            return format!("the matrix of {count} hosts is too wide to print: --json has it\n");
        }
        let mut rows = vec![vec!["from \\ to".to_owned()]];
        rows[0].extend((0..count).map(|to| (to + 1).to_string()));
        for (from, host) in self.hosts.iter().enumerate() {
            let mut row = vec![format!("{} {}", from + 1, host.name)];
            row.extend((0..count).map(|to| self.cell(from, to)));
            rows.push(row);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=count).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        rows.iter().map(line).collect()
    }

    fn cell(&self, from: usize, to: usize) -> String {
        let own = self.directions.iter().find(|it| (it.from, it.to) == (from, to));
        match own {
            None => "-".to_owned(),
            Some(it) if it.carried == 0 => "none".to_owned(),
            Some(it) => it.carried.to_string(),
        }
    }
}
