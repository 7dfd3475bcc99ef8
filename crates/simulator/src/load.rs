//! A load: what each unit wants, epoch by epoch; generated, or read from a recording.

use crate::machine::Machine;
use balance::{ItemId, Part};
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;

/// What can move: an indirection entry, or a whole queue of a guest.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its name for the balancer.
    pub id: ItemId,
    /// The queue it arrives by where queues move whole.
    pub queue: usize,
    /// The node of the guest's memory.
    pub home: Option<usize>,
}

/// A load on virtual time.
#[derive(Clone, Debug)]
pub struct Load {
    /// What it is called.
    pub name: String,
    /// What it consists of.
    pub description: String,
    /// How long an entry of `timeline` lasts.
    pub epoch: Duration,
    /// What can move.
    pub units: Vec<Unit>,
    /// Different states of the load: the share of a worker at home that each unit wants.
    pub rows: Vec<Vec<f64>>,
    /// The row of each epoch.
    pub timeline: Vec<usize>,
    /// Epochs in which the load has grown by so much that it has to be spread anew.
    pub rises: Vec<usize>,
    /// Whether the load is at rest in an epoch and was for the 3 s before.
    pub at_rest: Vec<bool>,
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not JSON, or another shape.
    #[error("this is no recorded load: {0}")]
    Json(#[from] serde_json::Error),
    /// Nothing to replay.
    #[error("the recorded load has no items or no intervals")]
    Empty,
    /// An interval of no length.
    #[error("\"interval_ms\" is {0}; allowed are 10 to 60000")]
    Interval(u64),
    /// A value that no busy time can have.
    #[error("{name}: \"busy\" has {seen} in interval {interval}; allowed are 0 to 1 of a worker")]
    Busy {
        /// The item.
        name: String,
        /// What it says.
        seen: f64,
        /// Where.
        interval: usize,
    },
    /// Items of different length.
    #[error("{name} has {seen} intervals, the first item {wanted}")]
    Length {
        /// The item.
        name: String,
        /// Its intervals.
        seen: usize,
        /// Those of the first.
        wanted: usize,
    },
    /// A node that the machine has not.
    #[error("{name} is at home on node {seen}; the machine has {nodes}")]
    Node {
        /// The item.
        name: String,
        /// What it says.
        seen: usize,
        /// How many there are.
        nodes: usize,
    },
}

/// A recording as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    interval_ms: u64,
    items: Vec<RecordedItem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedItem {
    vnic: String,
    #[serde(default)]
    queue: u16,
    entry: Option<u8>,
    node: Option<usize>,
    /// Share of a worker, interval by interval.
    busy: Vec<f64>,
}

/// Growth of the whole load from one interval to the next, in workers, that counts as a rise.
const RISE: f64 = 1.0;

/// A load of all workers together below this is at rest.
const REST: f64 = 0.3;

impl Load {
    /// Reads a recording: `{"interval_ms": 20, "items": [{"vnic": "vm1", "queue": 0, "busy": [0.1, 0.2]}]}`. An item has
    /// `queue` or `entry`, and `node` if the node of its memory is known.
    pub fn recorded(name: &str, json: &str, machine: &Machine) -> Result<Load, LoadError> {
        let Recording { interval_ms, items } = serde_json::from_str(json)?;
        if !(10..=60_000).contains(&interval_ms) {
            return Err(LoadError::Interval(interval_ms));
        }
        let intervals = items.first().map_or(0, |item| item.busy.len());
        if intervals == 0 {
            return Err(LoadError::Empty);
        }
        let mut vnics = HashMap::new();
        let mut units = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            check(item, intervals, machine)?;
            let next = u32::try_from(vnics.len()).unwrap_or(u32::MAX);
            let vnic = *vnics.entry(&item.vnic).or_insert(next);
            let part = item.entry.map_or(Part::Queue(item.queue), Part::Entry);
            let queue = if item.entry.is_some() { usize::from(item.queue) } else { place };
            units.push(Unit { id: ItemId { vnic, part }, queue, home: item.node });
        }
        let row = |interval| items.iter().map(|item| item.busy[interval]).collect();
        let mut load = Load {
            name: name.to_owned(),
            description: format!("{} items, recorded", units.len()),
            epoch: Duration::from_millis(interval_ms),
            units,
            rows: (0..intervals).map(row).collect(),
            timeline: (0..intervals).collect(),
            rises: Vec::new(),
            at_rest: Vec::new(),
        };
        load.find_phases();
        Ok(load)
    }

    /// Finds rises and rests in the timeline.
    pub(crate) fn find_phases(&mut self) {
        let totals: Vec<f64> = self.rows.iter().map(|row| row.iter().sum()).collect();
        let wanted: Vec<f64> = self.timeline.iter().map(|row| totals[*row]).collect();
        let grows = |epoch: &usize| wanted[*epoch] > f64::max(RISE, 1.5 * wanted[*epoch - 1]);
        self.rises = (1..wanted.len()).filter(grows).collect();
        let three_s = 3000 / self.epoch.as_millis().max(1);
        let mut resting = 0;
        let rests = |wanted: &f64| {
            resting = if *wanted <= REST { resting + 1 } else { 0 };
            resting > three_s
        };
        self.at_rest = wanted.iter().map(rests).collect();
    }

    /// How long it lasts.
    pub fn duration(&self) -> Duration {
        self.epoch * u32::try_from(self.timeline.len()).unwrap_or(u32::MAX)
    }
}

fn check(item: &RecordedItem, intervals: usize, machine: &Machine) -> Result<(), LoadError> {
    let name = || format!("{} queue {}", item.vnic, item.queue);
    if item.busy.len() != intervals {
        let (seen, wanted) = (item.busy.len(), intervals);
        return Err(LoadError::Length { name: name(), seen, wanted });
    }
    if let Some(interval) = item.busy.iter().position(|busy| !(0.0..=1.0).contains(busy)) {
        return Err(LoadError::Busy { name: name(), seen: item.busy[interval], interval });
    }
    match item.node {
        Some(seen) if seen >= machine.nodes => {
            Err(LoadError::Node { name: name(), seen, nodes: machine.nodes })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Load, String> {
        Load::recorded("test", json, &Machine::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_becomes_a_load() {
        let item = |vnic, busy| format!(r#"{{"vnic": "{vnic}", "node": 1, "busy": [{busy}]}}"#);
        let items = ["0, 1, 1, 0", "0, 0.5, 0.5, 0"].map(|busy| item("vm1", busy)).join(",");
        let load = read(&format!(r#"{{"interval_ms": 20, "items": [{items}]}}"#)).unwrap();
        assert_eq!((load.units.len(), load.rises.as_slice()), (2, [1].as_slice()));
        assert_eq!(
            (load.rows[1].clone(), load.duration()),
            (vec![1.0, 0.5], Duration::from_millis(80))
        );
    }

    #[test]
    fn what_is_wrong_with_a_recording_is_said() {
        for (json, says) in [
            ("", "no recorded load"),
            (r#"{"interval_ms": 20, "items": [], "x": 1}"#, "unknown field"),
            (r#"{"interval_ms": 20, "items": []}"#, "no items"),
            (r#"{"interval_ms": 0, "items": []}"#, "10 to 60000"),
            (
                r#"{"interval_ms": 20, "items": [{"vnic": "a", "busy": [0.5, 7.0]}]}"#,
                "a queue 0: \"busy\" has 7 in interval 1",
            ),
            (
                r#"{"interval_ms": 20, "items": [{"vnic": "a", "busy": [0.5]}, {"vnic": "b", "busy": []}]}"#,
                "b queue 0 has 0 intervals",
            ),
            (
                r#"{"interval_ms": 20, "items": [{"vnic": "a", "node": 2, "busy": [0.5]}]}"#,
                "node 2; the machine has 2",
            ),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
