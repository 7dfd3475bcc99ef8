//! A recording of a running switch as a file: `millrace vmmq record` writes it and the simulator
//! reads it.
//!
//! For each interval it has the share of a worker that each item took, the item's worker, frames
//! and bytes, and the busy share of each worker. A load written by hand needs only `interval_ms`
//! and `busy` of each item.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Version of the format.
    #[serde(default = "version")]
    pub version: u32,
    /// Length of an interval.
    pub interval_ms: u64,
    /// The workers, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<RecordedWorker>,
    /// The queues and entries that can move.
    pub items: Vec<RecordedItem>,
    /// Moves that the balancer made because of load, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<RecordedMove>,
    /// Number of moves that followed each other too fast to be recorded.
    #[serde(default)]
    pub moves_missed: u64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedWorker {
    /// The core that the worker is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// The NUMA node of its core.
    #[serde(default)]
    pub node: usize,
    /// Share of the worker's time in turns that took frames, for each interval.
    pub busy: Vec<f64>,
}

/// A queue, or an entry of an indirection table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedItem {
    /// The vNIC's port.
    pub vnic: String,
    /// The uplink that has the entry in its table; absent for a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<String>,
    /// Number of the vNIC's table that has the entry; absent for its first table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The queue; for an entry, the queue that the entry named at first.
    #[serde(default)]
    pub queue: u16,
    /// The entry; absent if the whole queue moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<u8>,
    /// The NUMA node of the guest's memory, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
    /// Whether the item may move.
    #[serde(default)]
    pub dynamic: bool,
    /// Workers that the item can move to; absent if it can move to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<usize>>,
    /// Share of a worker that the item took, for each interval.
    pub busy: Vec<f64>,
    /// Number of the item's worker, for each interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker: Vec<usize>,
    /// Number of the item's frames, for each interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<u64>,
    /// Number of the item's bytes, for each interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<u64>,
}

/// A move that the balancer made because of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMove {
    /// Time of the move since the recording began, in milliseconds.
    pub at_ms: u64,
    /// The vNIC's port.
    pub port: String,
    /// The moved item, such as `queue 0`.
    pub item: String,
    /// The worker before the move.
    pub from: usize,
    /// The worker after the move.
    pub to: usize,
    /// Reason of the move with its figures, as a sentence.
    pub why: String,
}

/// Reasons why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The text is not JSON, is cut off, or has another shape.
    #[error("this is no recorded load: {0}")]
    Json(#[from] serde_json::Error),
    /// The version of the format is not supported.
    #[error("the recording has version {0}; this program reads version {VERSION}")]
    Version(u64),
    /// There is nothing to replay.
    #[error("the recorded load has no items or no intervals")]
    Empty,
    /// An interval has no length.
    #[error("\"interval_ms\" is {0}; allowed are 10 to 60000")]
    Interval(u64),
    /// The recording is too long to simulate.
    #[error("the recording lasts {0} s; {MAX_SECONDS} s, a day, is the most")]
    TooLong(u64),
    /// There are more workers than a switch has.
    #[error("there are {0} workers; a switch has 64 at most")]
    TooManyWorkers(usize),
    /// A busy time is negative, not a number or too large.
    #[error("{name}: \"busy\" has {seen} in interval {interval}; allowed are 0 to 1 of a worker")]
    Busy {
        /// The item or worker.
        name: String,
        /// The value in the file.
        seen: f64,
        /// The interval.
        interval: usize,
    },
    /// A column has fewer or more intervals than the first.
    #[error("{name} has {seen} intervals in \"{column}\", the first item {wanted}")]
    Length {
        /// The item or worker.
        name: String,
        /// The column.
        column: &'static str,
        /// The column's number of intervals.
        seen: usize,
        /// The first column's number of intervals.
        wanted: usize,
    },
    /// An item is on a worker that does not exist.
    #[error("{name} is on worker {seen}; there are {workers}")]
    Worker {
        /// The item.
        name: String,
        /// The worker's number in the file.
        seen: usize,
        /// The number of workers.
        workers: usize,
    },
    /// An item is on a node that the machine lacks.
    #[error("{name} is at home on node {seen}; the machine has {nodes}")]
    Node {
        /// The item.
        name: String,
        /// The node's number in the file.
        seen: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// Two items have one name.
    #[error("{0} occurs twice")]
    Duplicate(String),
}

/// Length of the longest recording, in seconds.
const MAX_SECONDS: u64 = 86_400;

/// The version that is written and read.
pub const VERSION: u32 = 1;

fn version() -> u32 {
    VERSION
}

/// The field that is read first, because other versions may have other fields.
#[derive(Deserialize)]
struct Version {
    version: Option<u64>,
}

impl Recording {
    /// Reads and checks a file's text.
    ///
    /// # Errors
    /// [`RecordingError`] if the text is no recording, or a value in it is impossible.
    pub fn read(json: &str) -> Result<Recording, RecordingError> {
        let Version { version } = serde_json::from_str(json)?;
        if let Some(other) = version.filter(|version| *version != u64::from(VERSION)) {
            return Err(RecordingError::Version(other));
        }
        let recording: Recording = serde_json::from_str(json)?;
        recording.check()?;
        Ok(recording)
    }

    /// Returns the number of intervals.
    pub fn intervals(&self) -> usize {
        self.items.first().map_or(0, |item| item.busy.len())
    }

    fn check(&self) -> Result<(), RecordingError> {
        if !(10..=60_000).contains(&self.interval_ms) {
            return Err(RecordingError::Interval(self.interval_ms));
        }
        if self.intervals() == 0 {
            return Err(RecordingError::Empty);
        }
        let seconds = self.interval_ms.saturating_mul(self.intervals() as u64) / 1000;
        if seconds > MAX_SECONDS {
            return Err(RecordingError::TooLong(seconds));
        }
        if self.workers.len() > 64 {
            return Err(RecordingError::TooManyWorkers(self.workers.len()));
        }
        for (number, worker) in self.workers.iter().enumerate() {
            self.check_busy(&format!("worker {number}"), &worker.busy)?;
        }
        let mut names = HashSet::new();
        for item in &self.items {
            self.check_item(item)?;
            if !names.insert(item.key()) {
                return Err(RecordingError::Duplicate(item.name()));
            }
        }
        Ok(())
    }

    fn check_item(&self, item: &RecordedItem) -> Result<(), RecordingError> {
        let name = item.name();
        self.check_busy(&name, &item.busy)?;
        for (column, seen) in [
            ("worker", item.worker.len()),
            ("frames", item.frames.len()),
            ("bytes", item.bytes.len()),
        ] {
            self.check_length(&name, column, seen, seen == 0)?;
        }
        let workers = self.workers.len();
        match item.worker.iter().find(|worker| **worker >= workers) {
            Some(&seen) => Err(RecordingError::Worker { name, seen, workers }),
            None => Ok(()),
        }
    }

    fn check_busy(&self, name: &str, busy: &[f64]) -> Result<(), RecordingError> {
        self.check_length(name, "busy", busy.len(), false)?;
        match busy.iter().position(|busy| !(0.0..=1.0).contains(busy)) {
            Some(interval) => {
                Err(RecordingError::Busy { name: name.to_owned(), seen: busy[interval], interval })
            }
            None => Ok(()),
        }
    }

    fn check_length(
        &self,
        name: &str,
        column: &'static str,
        seen: usize,
        may_lack: bool,
    ) -> Result<(), RecordingError> {
        let wanted = self.intervals();
        if seen == wanted || may_lack {
            return Ok(());
        }
        Err(RecordingError::Length { name: name.to_owned(), column, seen, wanted })
    }
}

/// Identity of an item: uplink, vNIC, table, entry, queue.
pub(crate) type Key<'i> = (Option<&'i str>, &'i str, Option<u32>, Option<u8>, u16);

impl RecordedItem {
    /// Returns the item's name.
    pub fn name(&self) -> String {
        let table = self.table.map(|table| format!(", table {table}")).unwrap_or_default();
        match (self.entry, &self.uplink) {
            (None, _) => format!("{} queue {}", self.vnic, self.queue),
            (Some(entry), None) => format!("{} entry {entry}{table}", self.vnic),
            (Some(entry), Some(uplink)) => {
                format!("{} entry {entry} at {uplink}{table}", self.vnic)
            }
        }
    }

    /// Returns the item's identity, which all recordings of one switch share.
    pub(crate) fn key(&self) -> Key<'_> {
        let queue = if self.entry.is_some() { 0 } else { self.queue };
        let table = self.table.filter(|_| self.entry.is_some());
        (self.uplink.as_deref(), &self.vnic, table, self.entry, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        Recording::read(json).unwrap_err().to_string()
    }

    fn with_items(items: &str) -> String {
        format!(r#"{{"interval_ms": 20, "items": [{items}]}}"#)
    }

    #[test]
    fn what_is_wrong_with_a_recording_is_said() {
        for (items, says) in [
            (r#""#, "no items"),
            (r#"{"vnic": "a", "busy": []}"#, "no intervals"),
            (r#"{"vnic": "a", "busy": [0.5, 7.0]}"#, "a queue 0: \"busy\" has 7 in interval 1"),
            (r#"{"vnic": "a", "busy": [-0.5]}"#, "a queue 0: \"busy\" has -0.5 in interval 0"),
            (
                r#"{"vnic": "a", "busy": [0.5]}, {"vnic": "b", "busy": []}"#,
                "b queue 0 has 0 intervals in \"busy\"",
            ),
            (r#"{"vnic": "a", "busy": [0, 0], "frames": [7]}"#, "has 1 intervals in \"frames\""),
            (r#"{"vnic": "a", "busy": [0], "frames": [-7]}"#, "no recorded load"),
            (r#"{"vnic": "a", "busy": [0], "worker": [0]}"#, "is on worker 0; there are 0"),
            (r#"{"vnic": "a", "busy": [0]}, {"vnic": "a", "busy": [0]}"#, "a queue 0 occurs twice"),
        ] {
            let error = refused(&with_items(items));
            assert!(error.contains(says), "{items}: {error}");
        }
        for (json, says) in [
            ("", "no recorded load"),
            (r#"{"interval_ms": 20, "items": [], "x": 1}"#, "unknown field"),
            (r#"{"interval_ms": 0, "items": [{"vnic": "a", "busy": [1]}]}"#, "10 to 60000"),
            (r#"{"version": 2, "intervals": 7}"#, "has version 2; this program reads version 1"),
            (
                r#"{"interval_ms": 20, "workers": [{"busy": [2]}], "items": [{"vnic": "a", "busy": [1]}]}"#,
                "worker 0: \"busy\" has 2",
            ),
        ] {
            let error = refused(json);
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn a_recording_of_more_than_a_day_is_refused() {
        let minutes = |count| {
            let busy = vec!["0"; count].join(",");
            format!(r#"{{"interval_ms": 60000, "items": [{{"vnic": "a", "busy": [{busy}]}}]}}"#)
        };
        assert_eq!(Recording::read(&minutes(1440)).unwrap().intervals(), 1440);
        assert!(refused(&minutes(1441)).contains("lasts 86460 s; 86400 s"));
    }

    /// Cuts a file as a full disk or an interrupted copy does.
    #[test]
    fn a_recording_that_is_cut_is_refused_wherever_it_is_cut() {
        let whole = with_items(r#"{"vnic": "a", "busy": [0.5, 0.25], "frames": [1, 2]}"#);
        assert!(Recording::read(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(refused(&whole[..end]).contains("no recorded load"), "{end}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let item = RecordedItem {
            vnic: "vm1".to_owned(),
            uplink: Some("up".to_owned()),
            queue: 1,
            entry: Some(17),
            dynamic: true,
            reach: Some(vec![0, 1]),
            busy: vec![0.5],
            worker: vec![1],
            frames: vec![7],
            bytes: vec![700],
            ..RecordedItem::default()
        };
        let worker = |core| RecordedWorker { core, node: 0, busy: vec![0.5] };
        let recording = Recording {
            version: VERSION,
            interval_ms: 20,
            workers: vec![worker(Some(3)), worker(None)],
            items: vec![item],
            moves: Vec::new(),
            moves_missed: 0,
        };
        let json = serde_json::to_string(&recording).unwrap();
        assert_eq!(Recording::read(&json).unwrap(), recording);
        assert_eq!(recording.items[0].name(), "vm1 entry 17 at up");
    }
}
