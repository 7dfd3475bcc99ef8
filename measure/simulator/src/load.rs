//! A load: the demand of each unit in each epoch, generated or read from a recording.

use crate::machine::Machine;
use crate::recording::{RecordedItem, Recording, RecordingError};
use balance::{ItemId, Part};
use std::collections::HashMap;
use std::time::Duration;

/// A unit that can move: an indirection entry, or a whole queue of a guest.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The unit's identity for the balancer.
    pub id: ItemId,
    /// The unit's queue, for algorithms that move whole queues.
    pub queue: usize,
    /// The node of the guest's memory.
    pub home: Option<usize>,
}

/// A load on virtual time.
#[derive(Clone, Debug)]
pub struct Load {
    /// The load's name.
    pub name: String,
    /// Description of the load.
    pub description: String,
    /// Duration of an entry of `timeline`.
    pub epoch: Duration,
    /// The units that can move.
    pub units: Vec<Unit>,
    /// Distinct states of the load: the share of a worker on the unit's node that each unit wants.
    pub rows: Vec<Vec<f64>>,
    /// The row of each epoch.
    pub timeline: Vec<usize>,
    /// Epochs in which the load has risen so much that it has to be distributed anew.
    pub rises: Vec<usize>,
    /// Whether the load has been at rest for 3 s, for each epoch.
    pub at_rest: Vec<bool>,
}

/// Growth of the whole load from one interval to the next, in workers, that counts as a rise.
const RISE: f64 = 1.0;

/// Total load of all workers below which the load is at rest.
const REST: f64 = 0.3;

impl Load {
    /// Makes the load of a recording, on a machine with the recording's nodes.
    ///
    /// # Errors
    /// Fails if the recording has a node that the machine lacks.
    pub fn recorded(
        name: &str,
        recording: &Recording,
        machine: &Machine,
    ) -> Result<Load, RecordingError> {
        let nodes = machine.nodes;
        let is_foreign = |item: &&RecordedItem| item.node.is_some_and(|node| node >= nodes);
        if let Some(item) = recording.items.iter().find(is_foreign) {
            let seen = item.node.unwrap_or_default();
            return Err(RecordingError::Node { name: item.name(), seen, nodes });
        }
        let items = &recording.items;
        let row = |interval| items.iter().map(|item| item.busy[interval]).collect();
        let mut load = Load {
            name: name.to_owned(),
            description: format!("{} items, recorded", items.len()),
            epoch: Duration::from_millis(recording.interval_ms),
            units: units(items.iter()),
            rows: (0..recording.intervals()).map(row).collect(),
            timeline: (0..recording.intervals()).collect(),
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

    /// Returns the duration of the load.
    pub fn duration(&self) -> Duration {
        self.epoch * u32::try_from(self.timeline.len()).unwrap_or(u32::MAX)
    }
}

/// Returns the items as the balancer's units.
pub(crate) fn units<'i>(items: impl Iterator<Item = &'i RecordedItem>) -> Vec<Unit> {
    let (mut vnics, mut queues) = (HashMap::new(), HashMap::new());
    let unit = |item: &'i RecordedItem| {
        let next = u32::try_from(vnics.len()).unwrap_or(u32::MAX);
        let vnic = *vnics.entry((&item.uplink, &item.vnic, item.table)).or_insert(next);
        let next = queues.len();
        let queue = *queues.entry((vnic, item.queue, item.entry.is_some())).or_insert(next);
        let part = item.entry.map_or(Part::Queue(item.queue), Part::Entry);
        Unit { id: ItemId { vnic, part }, queue, home: item.node }
    };
    items.map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Load, String> {
        let recording = Recording::read(json).unwrap();
        Load::recorded("test", &recording, &Machine::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_becomes_a_load() {
        let item =
            |(queue, busy)| format!(r#"{{"vnic": "vm1", "queue": {queue}, "busy": [{busy}]}}"#);
        let items = [(0, "0, 1, 1, 0"), (1, "0, 0.5, 0.5, 0")].map(item).join(",");
        let load = read(&format!(r#"{{"interval_ms": 20, "items": [{items}]}}"#)).unwrap();
        assert_eq!((load.units.len(), load.rises.as_slice()), (2, [1].as_slice()));
        assert_eq!(
            (load.rows[1].clone(), load.duration()),
            (vec![1.0, 0.5], Duration::from_millis(80))
        );
    }

    /// Two entries of different tables that name queue 0, and a guest's queue 0.
    #[test]
    fn queues_of_different_ports_are_different() {
        let items = r#"{"vnic": "a", "busy": [0]}, {"vnic": "a", "uplink": "up", "entry": 0, "busy": [0]},
            {"vnic": "a", "uplink": "up", "entry": 1, "busy": [0]}, {"vnic": "b", "uplink": "up", "entry": 1, "busy": [0]}"#;
        let load = read(&format!(r#"{{"interval_ms": 20, "items": [{items}]}}"#)).unwrap();
        let queues: Vec<usize> = load.units.iter().map(|unit| unit.queue).collect();
        assert_eq!(queues, [0, 1, 1, 2]);
    }

    #[test]
    fn a_node_that_the_machine_lacks_is_refused() {
        let json = r#"{"interval_ms": 20, "items": [{"vnic": "a", "node": 2, "busy": [0.5]}]}"#;
        assert!(
            read(json).unwrap_err().contains("a queue 0 is at home on node 2; the machine has 2")
        );
    }
}
