//! The result of a guide: `--json` prints it, and the state file holds it between two runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the JSON's fields.
pub(super) const SCHEMA: u32 = 1;

/// Everything that a guide has seen so far.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct Document {
    /// Version of these fields.
    pub(super) schema: u32,
    /// The guide: `rsc`, `vmmq`, `linux`, `jumbo` or `iscsi`.
    pub(super) guide: String,
    /// Title of the document that the guide follows.
    pub(super) title: String,
    /// Version of the program.
    pub(super) millrace: String,
    /// The vNIC's port; absent if the guide is about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<String>,
    /// The activities, in order; those not begun have no tasks.
    pub(super) activities: Vec<ActivityResult>,
    /// The measurements so far, one for each name.
    pub(super) measurements: Vec<Measurement>,
    /// The document's table, once everything in it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) table: Option<Table>,
    /// How the last run ended.
    pub(super) verdict: Verdict,
    /// When the last run ended, in UTC; absent before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) ended: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// All tasks are done: none found a problem, and nothing is left to do.
    Done,
    /// All tasks were looked at, and none found a problem; some noted what is to be done or
    /// decided elsewhere.
    Noted,
    /// All tasks were looked at, and some found a problem.
    Problems,
    /// A task found a problem with which the rest would prove nothing.
    Stopped,
    /// It was interrupted, or failed, before the last task.
    Unfinished,
}

/// An activity of the document.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct ActivityResult {
    /// Its title.
    pub(super) title: String,
    /// Its tasks that were looked at, in order.
    pub(super) tasks: Vec<TaskResult>,
}

/// A task and what it found.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct TaskResult {
    /// Its title.
    pub(super) title: String,
    /// The command in the document; empty if it has none.
    pub(super) windows: String,
    /// The command here; empty if there is none.
    pub(super) here: String,
    /// Whether it found what is wanted.
    pub(super) status: Status,
    /// The value seen.
    pub(super) seen: String,
    /// The value wanted; empty if none applies.
    pub(super) wanted: String,
    /// What to do about it; empty if nothing.
    pub(super) remedy: String,
}

/// Whether a task found what is wanted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// It did.
    Passed,
    /// Something to do or to decide elsewhere; the switch cannot tell whether it was done. The next
    /// run looks again.
    Noted,
    /// It did not.
    Problem,
}

impl Status {
    /// Returns the word that people read.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Status::Passed => "ok",
            Status::Noted => "note",
            Status::Problem => "PROBLEM",
        }
    }
}

/// What the switch counted while traffic flowed toward the vNIC. Bytes are those of frames.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// What differs from the other measurements: `on`, `off`, `mtu 9000`.
    pub(super) name: String,
    /// Its row in the table.
    pub(super) label: String,
    /// When it ended, in seconds since 1970.
    #[serde(default)]
    pub(super) at_s: u64,
    /// Length in seconds.
    pub(super) seconds: f64,
    /// Gigabits (10^9) per second.
    pub(super) gigabits_per_s: f64,
    /// Megabytes (2^20) per second, as NTttcp counts.
    pub(super) megabytes_per_s: f64,
    /// Segments that reached the switch for each frame delivered to the vNIC; absent without
    /// frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) segments_per_frame: Option<f64>,
    /// Bytes of a segment as it was on the wire; absent without frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_segment: Option<f64>,
    /// Share of the frames that arrived already coalesced, or not yet segmented, in percent.
    pub(super) arrived_coalesced_percent: f64,
    /// Frames lost at the port.
    pub(super) dropped: f64,
    /// How busy each worker was, in percent; empty if agents measured.
    pub(super) workers_busy_percent: Vec<f64>,
    /// Nanoseconds of all workers per byte; absent if agents measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) worker_ns_per_byte: Option<f64>,
    /// Ingress queues of the vNIC.
    pub(super) queues: usize,
    /// Ingress queues of the vNIC from which frames came.
    pub(super) queues_used: usize,
    /// Queues and entries that dynamic VMMQ moved meanwhile.
    pub(super) moves: u64,
    /// Processor time of the receiver's machine, in percent; only from agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_percent: Option<f64>,
    /// Cycles of the receiver's machine per byte; only from agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cycles_per_byte: Option<f64>,
}

/// The document's table with the values measured here.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct Table {
    /// Titles of the columns.
    pub(super) columns: Vec<String>,
    /// The rows.
    pub(super) rows: Vec<Row>,
    /// What figures are not comparable, and why; absent if all are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub(super) struct Row {
    /// What the values are of.
    pub(super) label: String,
    /// A value for each column; null where there is none.
    pub(super) values: Vec<Option<f64>>,
}

impl Document {
    /// Returns the document of a guide that has not begun.
    pub(super) fn new(guide: &str, title: &str, port: Option<String>) -> Document {
        Document {
            schema: SCHEMA,
            guide: guide.to_owned(),
            title: title.to_owned(),
            millrace: env!("CARGO_PKG_VERSION").to_owned(),
            port,
            activities: Vec::new(),
            measurements: Vec::new(),
            table: None,
            verdict: Verdict::Unfinished,
            ended: String::new(),
        }
    }

    /// Returns the result of a task, if it was looked at.
    pub(super) fn task(&self, activity: &str, task: &str) -> Option<&TaskResult> {
        let activity = self.activities.iter().find(|it| it.title == activity)?;
        activity.tasks.iter().find(|it| it.title == task)
    }

    /// Stores the result of a task in place of an earlier one, or at this place in its activity.
    pub(super) fn put(&mut self, activity: &str, place: usize, result: TaskResult) {
        let Some(activity) = self.activities.iter_mut().find(|it| it.title == activity) else {
            return;
        };
        match activity.tasks.iter_mut().find(|it| it.title == result.title) {
            Some(earlier) => *earlier = result,
            None => activity.tasks.insert(place.min(activity.tasks.len()), result),
        }
    }

    /// Returns the measurement of this name, if there is one.
    pub(super) fn measurement(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|it| it.name == name)
    }

    /// Stores a measurement in place of an earlier one of its name.
    pub(super) fn measured(&mut self, measurement: Measurement) {
        self.measurements.retain(|it| it.name != measurement.name);
        self.measurements.push(measurement);
    }

    /// Returns the tasks that did not find what is wanted, in order.
    pub(super) fn standing(&self) -> impl Iterator<Item = &TaskResult> {
        let tasks = self.activities.iter().flat_map(|activity| &activity.tasks);
        tasks.filter(|task| task.status != Status::Passed)
    }

    /// Returns the worst status of all tasks.
    pub(super) fn worst(&self) -> Status {
        self.standing().map(|task| task.status).max().unwrap_or(Status::Passed)
    }
}

impl Row {
    /// Returns the ratio of each value to that of another row.
    pub(super) fn ratio(&self, label: &str, to: &Row) -> Row {
        let values = self.values.iter().zip(&to.values);
        let ratio = |(own, other): (&Option<f64>, &Option<f64>)| {
            own.zip(*other).filter(|(_, other)| *other > 0.0).map(|(own, other)| own / other)
        };
        Row { label: label.to_owned(), values: values.map(ratio).collect() }
    }
}
