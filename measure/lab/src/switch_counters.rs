//! Traffic through the switch in an interval, by the counters of its ports, queues and workers.

use crate::plan::Values;
use api::body::{CountersBody, QueueBody, WorkerBody};
use std::collections::BTreeMap;

/// Prefix of the keys that count trains by their segments.
pub(crate) const TRAINS_OF: &str = "trains_of_";

/// Counters of the switch at one moment.
pub(crate) struct SwitchCounters {
    /// Counters of the sender's port.
    pub(crate) ingress: CountersBody,
    /// Counters of the receiver's port.
    pub(crate) egress: CountersBody,
    /// Ingress queues of both ports.
    pub(crate) queues: Vec<QueueBody>,
    pub(crate) workers: Vec<WorkerBody>,
}

impl SwitchCounters {
    /// Returns the figures of the traffic since an earlier moment.
    pub(crate) fn since(&self, earlier: &SwitchCounters) -> Values {
        let (taken, taken_before) = (&self.ingress, &earlier.ingress);
        let bytes = taken.ingress_bytes - taken_before.ingress_bytes;
        let frames = taken.ingress_frames - taken_before.ingress_frames;
        let unfinished = taken.unfinished_checksums - taken_before.unfinished_checksums;
        let mut values = delivered(&self.egress, &earlier.egress);
        put_ratio(&mut values, "ingress_frame_bytes", bytes, frames);
        put_ratio(&mut values, "unfinished_checksums_of_frames", unfinished, frames);
        values.insert("lost_frames".into(), (self.lost() - earlier.lost()) as f64);
        values.extend(queues(&self.queues, &earlier.queues));
        let workers = self.workers.iter().zip(&earlier.workers);
        let frames: Vec<u64> = workers.map(|(now, then)| now.frames - then.frames).collect();
        values.insert("workers_in_use".into(), in_use(&frames) as f64);
        values
    }

    /// Returns the frames of both ports that were lost, in the switch or before it.
    fn lost(&self) -> u64 {
        lost(&self.ingress) + lost(&self.egress)
    }
}

/// Returns the frames of a port that were lost, in the switch or before it.
fn lost(counters: &CountersBody) -> u64 {
    counters.dropped + counters.device_lost
}

/// Suffixes, after a port's name, of the keys of its ingress queues and of those that are silent.
pub(crate) const QUEUES: [&str; 2] = ["_queues", "_silent_queues"];

/// Returns the number of ingress queues of each port, and of those that took less than 1 % of the
/// port's frames: a kernel sends solicitations and reports of groups on any queue.
fn queues(now: &[QueueBody], before: &[QueueBody]) -> Values {
    let mut ports: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for queue in now {
        let then = before.iter().find(|one| (&one.port, one.queue) == (&queue.port, queue.queue));
        let frames = queue.frames.saturating_sub(then.map_or(0, |then| then.frames));
        ports.entry(&queue.port).or_default().push(frames);
    }
    let figures = ports.into_iter().flat_map(|(port, frames)| {
        let [all, used] = [frames.len(), in_use(&frames)];
        QUEUES
            .into_iter()
            .zip([all, all - used])
            .map(move |(key, count)| (format!("{port}{key}"), count as f64))
    });
    figures.collect()
}

/// Returns how many of these queues or workers took at least 1 % of all frames. `frames` are those
/// of each.
fn in_use(frames: &[u64]) -> usize {
    let least = frames.iter().sum::<u64>().div_ceil(100).max(1);
    frames.iter().filter(|frames| **frames >= least).count()
}

/// Returns the figures of frames delivered to the receiver's port. A port that was removed and
/// added again in between counts from 0.
pub fn delivered(given: &CountersBody, before: &CountersBody) -> Values {
    let since = |count: fn(&CountersBody) -> u64| count(given).saturating_sub(count(before));
    let delivered = since(|port| port.egress_frames);
    let joined = since(|port| port.rsc.coalesced_packets);
    let figures = [
        ("egress_frames", delivered as f64),
        ("bytes_by_switch", since(|port| port.egress_bytes - port.carried_egress_bytes) as f64),
        ("coalesced_packets", joined as f64),
        ("segmented_trains", since(|port| port.segmented_trains) as f64),
        ("segments", since(|port| port.segments) as f64),
        ("finished_checksums", since(|port| port.checksums) as f64),
        ("lost_frames", since(lost) as f64),
    ];
    let depths = given.rsc.train_depth.iter().map(|depth| {
        let same = before.rsc.train_depth.iter().filter(|then| then.segments == depth.segments);
        let trains = depth.trains.saturating_sub(same.map(|then| then.trains).sum());
        (format!("{TRAINS_OF}{}", depth.segments), trains as f64)
    });
    let figures = figures.into_iter().map(|(key, value)| (key.to_owned(), value));
    let mut values: Values = figures.chain(depths).collect();
    put_ratio(&mut values, "segments_per_train", delivered + joined, delivered);
    let arrived = since(|port| port.rsc.arrived_coalesced_trains);
    put_ratio(&mut values, "arrived_coalesced_of_frames", arrived, delivered);
    values
}

/// Inserts a total divided by a count, unless the count is 0: an interval without frames proves
/// nothing about frames.
pub(crate) fn put_ratio(values: &mut Values, key: &str, total: u64, count: u64) {
    if count > 0 {
        values.insert(key.to_owned(), total as f64 / count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_frames_says_nothing_of_their_depth() {
        let nothing = CountersBody::default();
        let some = CountersBody { egress_frames: 4, ..CountersBody::default() };
        assert!(!delivered(&nothing, &nothing).contains_key("segments_per_train"));
        assert_eq!(delivered(&some, &nothing)["segments_per_train"], 1.0);
    }

    #[test]
    fn a_worker_or_queue_that_took_a_stray_frame_is_not_in_use() {
        assert_eq!(in_use(&[0, 0]), 0);
        assert_eq!(in_use(&[0, 1]), 1);
        assert_eq!(in_use(&[1000, 9, 900]), 2);
    }

    #[test]
    fn a_queue_that_took_no_frame_is_silent() {
        let queue = |port: &str, queue, frames| QueueBody {
            port: port.into(),
            queue,
            mac: None,
            vlan: String::new(),
            worker: 0,
            cpu: None,
            load_percent: 0.0,
            entries: 0,
            busy_ns: 0,
            frames,
            bytes: 0,
            wait: None,
            movable: false,
            vnics: Vec::new(),
        };
        let at = |frames| [queue("vnic", 0, frames), queue("vnic", 1, 7), queue("uplink", 0, 7)];
        let values = queues(&at(8), &at(7));
        assert_eq!((values["vnic_queues"], values["vnic_silent_queues"]), (2.0, 1.0));
        assert_eq!((values["uplink_queues"], values["uplink_silent_queues"]), (1.0, 1.0));
    }
}
