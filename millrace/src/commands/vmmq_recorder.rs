//! Makes a recording of the daemon's counters, read once an interval.

use control::Problem;
use control::body::{VmmqLoadBody, VmmqMoveBody, VmmqQueueBody, VmmqTableBody};
use simulator::{RecordedItem, RecordedMove, RecordedWorker, Recording, VERSION};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Where frames for no vNIC are counted: no port can have this name.
const DEFAULT_TABLE: &str = "default table";

/// Makes a recording of what it is told.
pub(crate) struct Recorder {
    interval_ns: u64,
    begin_ns: u64,
    last: VmmqLoadBody,
    recording: Recording,
    intervals: usize,
    /// Place in the recording.
    items: HashMap<Name, usize>,
    /// Busy time, in intervals, beyond the end of the interval that it was counted in: a turn is counted when it ends.
    over: HashMap<Name, f64>,
    workers_over: Vec<f64>,
}

/// Uplink, vNIC, entry or queue.
type Name = (Option<String>, String, Option<u8>, u16);

/// What one item did since it was last looked at.
struct Done {
    name: Name,
    /// Of an entry: the queue that it names.
    queue: u16,
    worker: usize,
    dynamic: bool,
    reach: Option<Vec<usize>>,
    busy_ns: f64,
    frames: u64,
    bytes: u64,
}

impl Recorder {
    /// Begins with what was counted so far.
    pub(crate) fn new(interval: Duration, first: VmmqLoadBody) -> Recorder {
        let workers = first.workers.iter().map(|worker| RecordedWorker {
            core: worker.core,
            node: worker.node,
            busy: Vec::new(),
        });
        Recorder {
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            begin_ns: first.at_ns,
            workers_over: vec![0.0; first.workers.len()],
            recording: Recording {
                version: VERSION,
                interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
                workers: workers.collect(),
                items: Vec::new(),
                moves: Vec::new(),
                moves_missed: 0,
            },
            last: first,
            intervals: 0,
            items: HashMap::new(),
            over: HashMap::new(),
        }
    }

    /// Notes what was counted since the last call, as so many intervals as have passed: one, more if the caller was late.
    /// Returns the moves since then.
    pub(crate) fn add(&mut self, now: &VmmqLoadBody) -> Result<u64, Problem> {
        let mut workers = now.workers.iter().zip(&self.last.workers);
        let fell = now.at_ns < self.last.at_ns
            || now.moves < self.last.moves
            || workers.any(|(now, last)| now.busy_ns < last.busy_ns);
        if fell || now.workers.len() != self.last.workers.len() {
            return Err(Problem::new("the daemon was restarted while it was recorded")
                .seen("counters that began anew")
                .wanted("one run of the daemon")
                .remedy("record again"));
        }
        let passed = now.at_ns - self.begin_ns + self.interval_ns / 2;
        let passed = usize::try_from(passed / self.interval_ns).unwrap_or(usize::MAX);
        let new = passed - self.intervals;
        if new == 0 {
            return Ok(0);
        }
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let elapsed_ns = (now.at_ns - self.last.at_ns) as f64;
        let workers = self.recording.workers.iter_mut().zip(&mut self.workers_over);
        for ((worker, over), (old, new_sum)) in
            workers.zip(self.last.workers.iter().zip(&now.workers))
        {
            let busy = since(new_sum.busy_ns, old.busy_ns) / elapsed_ns;
            (0..new).for_each(|_| worker.busy.push(within(busy, over)));
        }
        for done in done(&self.last, now) {
            self.note(done, elapsed_ns, new);
        }
        self.intervals = passed;
        for item in &mut self.recording.items {
            // Those that were not looked at: their port has gone, or no frame came.
            item.busy.resize(passed, 0.0);
            let worker = item.worker.last().copied().unwrap_or_default();
            item.worker.resize(passed, worker);
            item.frames.resize(passed, 0);
            item.bytes.resize(passed, 0);
        }
        let moves = now.moves - self.last.moves;
        self.last = now.clone();
        Ok(moves)
    }

    fn note(&mut self, done: Done, elapsed_ns: f64, new: usize) {
        let begun = self.intervals;
        let place = *self.items.entry(done.name.clone()).or_insert_with(|| {
            let (uplink, vnic, entry, _) = done.name.clone();
            self.recording.items.push(RecordedItem {
                vnic,
                uplink,
                queue: done.queue,
                entry,
                busy: vec![0.0; begun],
                worker: vec![done.worker; begun],
                frames: vec![0; begun],
                bytes: vec![0; begun],
                ..RecordedItem::default()
            });
            self.recording.items.len() - 1
        });
        let Some(item) = self.recording.items.get_mut(place) else { return };
        let over = self.over.entry(done.name).or_default();
        item.dynamic |= done.dynamic;
        item.reach = done.reach;
        let count = new as u64;
        for number in 1..=count {
            item.busy.push(within(done.busy_ns / elapsed_ns, over));
            item.worker.push(done.worker);
            let part = |sum: u64| sum * number / count - sum * (number - 1) / count;
            item.frames.push(part(done.frames));
            item.bytes.push(part(done.bytes));
        }
    }

    /// Notes the `count` moves up to the last look; `moves` are those that the daemon remembers, oldest first.
    pub(crate) fn add_moves(&mut self, count: u64, moves: &[VmmqMoveBody]) {
        let begin_s = Duration::from_nanos(self.begin_ns).as_secs_f64();
        let noted = self.last.moves.saturating_sub(count);
        let before = self.recording.moves.len();
        // Those after the last look are the next one's.
        let is_new =
            |moved: &&VmmqMoveBody| noted < moved.number && moved.number <= self.last.moves;
        for moved in moves.iter().filter(is_new) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an hour")]
            let at_ms = (1e3 * (moved.at_s - begin_s)).max(0.0).round() as u64;
            self.recording.moves.extend(moved.items().into_iter().map(|item| RecordedMove {
                at_ms,
                port: moved.port.clone(),
                item,
                from: moved.from,
                to: moved.to,
                why: moved.text.clone(),
            }));
        }
        let taken = (self.recording.moves.len() - before) as u64;
        self.recording.moves_missed += count.saturating_sub(taken);
    }

    /// So far.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Items times intervals.
    pub(crate) fn values(&self) -> usize {
        self.recording.items.len() * self.intervals
    }

    /// All of it.
    pub(crate) fn finish(self) -> Recording {
        self.recording
    }
}

/// What fits into an interval, in millionths of it; the rest is `over`, and counted in the next one.
fn within(busy: f64, over: &mut f64) -> f64 {
    let sum = busy + *over;
    let fits = (sum.clamp(0.0, 1.0) * 1e6).round() / 1e6;
    *over = sum - fits;
    fits
}

#[allow(clippy::cast_precision_loss, reason = "seconds")]
fn since(new: u64, old: u64) -> f64 {
    new.saturating_sub(old) as f64
}

/// What each queue did, and each entry that had frames.
fn done(last: &VmmqLoadBody, now: &VmmqLoadBody) -> Vec<Done> {
    let steered: HashSet<&str> = now.tables.iter().map(|table| table.uplink.as_str()).collect();
    let old: HashMap<_, _> =
        last.queues.iter().map(|queue| ((queue.port.as_str(), queue.queue), queue)).collect();
    let queue = |queue: &VmmqQueueBody| {
        let old = old.get(&(queue.port.as_str(), queue.queue));
        let number = u16::try_from(queue.queue).unwrap_or(u16::MAX);
        Done {
            name: (None, queue.port.clone(), None, number),
            queue: number,
            worker: queue.worker,
            dynamic: queue.dynamic,
            reach: None,
            busy_ns: since(queue.busy_ns, old.map_or(queue.busy_ns, |old| old.busy_ns)),
            frames: queue.frames.saturating_sub(old.map_or(queue.frames, |old| old.frames)),
            bytes: queue.bytes.saturating_sub(old.map_or(queue.bytes, |old| old.bytes)),
        }
    };
    let queues: Vec<Done> = now.queues.iter().map(queue).collect();
    let mut found = entries(last, now, &queues);
    found.extend(queues.into_iter().filter(|queue| !steered.contains(queue.name.1.as_str())));
    found
}

/// An entry takes that part of its queue's time and bytes which its frames are of the queue's, as the balancer has it.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "frames and bytes of an interval"
)]
fn entries(last: &VmmqLoadBody, now: &VmmqLoadBody, queues: &[Done]) -> Vec<Done> {
    let name = |table: &VmmqTableBody| (table.uplink.clone(), table.vnic.clone());
    let old: HashMap<_, _> = last.tables.iter().map(|table| (name(table), table)).collect();
    let mut steered = Vec::new();
    let mut sums: HashMap<(&str, u8), u64> = HashMap::new();
    for table in &now.tables {
        let Some(old) = old.get(&name(table)) else { continue };
        let frames =
            table.frames.iter().zip(&old.frames).map(|(new, old)| new.saturating_sub(*old));
        for (entry, (queue, frames)) in (0u8..).zip(table.queues.iter().zip(frames)) {
            *sums.entry((&table.uplink, *queue)).or_default() += frames;
            if frames > 0 {
                steered.push((table, entry, *queue, frames));
            }
        }
    }
    let mut of: HashMap<&str, Vec<&Done>> = HashMap::new();
    queues.iter().for_each(|queue| of.entry(&queue.name.1).or_default().push(queue));
    let entry = |(table, entry, queue, frames): (&VmmqTableBody, u8, u8, u64)| {
        let queues = of.get(table.uplink.as_str())?;
        let at = queues.iter().find(|at| at.queue == u16::from(queue))?;
        let sum = sums.get(&(table.uplink.as_str(), queue)).copied().unwrap_or(frames);
        let part = frames as f64 / sum.max(1) as f64;
        let vnic = table.vnic.clone().unwrap_or_else(|| DEFAULT_TABLE.to_owned());
        Some(Done {
            name: (Some(table.uplink.clone()), vnic, Some(entry), 0),
            queue: queue.into(),
            worker: at.worker,
            dynamic: table.dynamic,
            reach: Some(queues.iter().map(|queue| queue.worker).collect()),
            busy_ns: at.busy_ns * part,
            frames,
            bytes: (at.bytes as f64 * part) as u64,
        })
    };
    steered.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests;
