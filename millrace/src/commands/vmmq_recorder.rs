//! Makes a recording from the daemon's counters, read once per interval.

mod done;

use api::body::{VmmqLoadBody, VmmqMoveBody};
use done::{Done, Name, Tables, done, since};
use problem::Problem;
use simulator::{RecordedItem, RecordedMove, RecordedWorker, Recording, VERSION};
use std::collections::HashMap;
use std::time::Duration;

/// Most values in a recording: items and workers times intervals. That takes about 600 MB of memory
/// in this process, none in the daemon.
const MOST_VALUES: usize = 20_000_000;

/// Most moves in a recording; further ones are only counted.
const MOST_MOVES: usize = 100_000;

/// Builds a recording from successive readings of the counters.
pub(crate) struct Recorder {
    interval_ns: u64,
    begin_ns: u64,
    last: VmmqLoadBody,
    recording: Recording,
    intervals: usize,
    most_values: usize,
    /// Index of each item in the recording.
    items: HashMap<Name, usize>,
    tables: Tables,
    /// Busy time, in intervals, beyond the end of the interval in which it was counted: a turn is
    /// counted when it ends.
    over: HashMap<Name, f64>,
    workers_over: Vec<f64>,
}

/// The result of adding a reading of the counters.
#[derive(Debug, PartialEq)]
pub(crate) enum Added {
    /// The reading was recorded. The number is that of the moves since the reading before.
    Moves(u64),
    /// The reading was not recorded: the recording would be too large.
    Full,
}

/// Intervals that passed between two readings: one, or more if the caller was late.
struct Passed {
    /// Number of intervals to record.
    count: usize,
    /// Number of intervals that passed.
    of: usize,
    elapsed_ns: f64,
}

impl Recorder {
    /// Starts a recording from a first reading.
    pub(crate) fn new(interval: Duration, first: VmmqLoadBody) -> Recorder {
        let workers = first.workers.iter().map(|worker| RecordedWorker {
            core: worker.core,
            node: worker.node,
            busy: Vec::new(),
        });
        let mut tables = Tables::default();
        tables.note(&first);
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
            most_values: MOST_VALUES,
            items: HashMap::new(),
            tables,
            over: HashMap::new(),
        }
    }

    /// Records what was counted since the last call, spread over the intervals that have passed:
    /// one, or more if the caller was late. The recording has at most `most` intervals.
    ///
    /// # Errors
    /// The daemon was restarted since the last reading.
    pub(crate) fn add(&mut self, now: VmmqLoadBody, most: usize) -> Result<Added, Problem> {
        self.is_same_run(&now)?;
        let passed = now.at_ns - self.begin_ns + self.interval_ns / 2;
        let all = usize::try_from(passed / self.interval_ns).unwrap_or(usize::MAX);
        let end = all.min(most);
        if end <= self.intervals {
            return Ok(Added::Moves(0));
        }
        self.tables.note(&now);
        let found = done(&self.last, &now, &self.tables);
        if !self.has_room(&found, end) {
            return Ok(Added::Full);
        }
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let elapsed_ns = (now.at_ns - self.last.at_ns) as f64;
        let (count, of) = (end - self.intervals, all - self.intervals);
        let passed = Passed { count, of, elapsed_ns };
        self.note_workers(&now, &passed);
        for done in found {
            self.note(done, &passed);
        }
        self.intervals = end;
        for item in &mut self.recording.items {
            // Items absent from this reading: their port is gone, or no frame came.
            item.busy.resize(end, 0.0);
            let worker = item.worker.last().copied().unwrap_or_default();
            item.worker.resize(end, worker);
            item.frames.resize(end, 0);
            item.bytes.resize(end, 0);
        }
        let moves = now.moves - self.last.moves;
        self.last = now;
        Ok(Added::Moves(moves))
    }

    fn is_same_run(&self, now: &VmmqLoadBody) -> Result<(), Problem> {
        let mut workers = now.workers.iter().zip(&self.last.workers);
        let fell = now.at_ns < self.last.at_ns
            || now.moves < self.last.moves
            || workers.any(|(now, last)| now.busy_ns < last.busy_ns);
        if !fell && now.workers.len() == self.last.workers.len() {
            return Ok(());
        }
        Err(Problem::new("the daemon was restarted during the recording")
            .seen("counters that restarted at 0")
            .wanted("one run of the daemon")
            .remedy("record again"))
    }

    /// Returns whether the recording has room for this number of intervals, with the new items.
    fn has_room(&self, found: &[Done], intervals: usize) -> bool {
        let new = found.iter().filter(|done| !self.items.contains_key(&done.name)).count();
        let columns = self.recording.workers.len() + self.items.len() + new;
        columns.saturating_mul(intervals) <= self.most_values
    }

    /// Returns the reason why there is no room.
    pub(crate) fn fullness(&self) -> String {
        format!(
            "the recording ends early: items and workers times intervals are {} at most; record fewer seconds, or \
             use longer intervals",
            self.most_values
        )
    }

    fn note_workers(&mut self, now: &VmmqLoadBody, passed: &Passed) {
        let workers = self.recording.workers.iter_mut().zip(&mut self.workers_over);
        let sums = self.last.workers.iter().zip(&now.workers);
        for ((worker, over), (old, new)) in workers.zip(sums) {
            let busy = since(new.busy_ns, old.busy_ns) / passed.elapsed_ns;
            (0..passed.count).for_each(|_| worker.busy.push(within(busy, over)));
        }
    }

    fn note(&mut self, done: Done, passed: &Passed) {
        let begun = self.intervals;
        let place = *self.items.entry(done.name.clone()).or_insert_with(|| {
            let Name { uplink, vnic, table, entry, .. } = done.name.clone();
            self.recording.items.push(RecordedItem {
                vnic,
                uplink,
                table,
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
        for number in 0..passed.count {
            item.busy.push(within(done.busy_ns / passed.elapsed_ns, over));
            item.worker.push(done.worker);
            item.frames.push(part(done.frames, number, passed.of));
            item.bytes.push(part(done.bytes, number, passed.of));
        }
    }

    /// Records the `count` moves up to the last reading; `moves` are those that the daemon
    /// remembers, oldest first.
    pub(crate) fn add_moves(&mut self, count: u64, moves: &[VmmqMoveBody]) {
        let begin_s = Duration::from_nanos(self.begin_ns).as_secs_f64();
        let noted = self.last.moves.saturating_sub(count);
        let before = self.recording.moves.len();
        // Moves after the last reading belong to the next one.
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
        self.recording.moves.truncate(MOST_MOVES);
        let taken = (self.recording.moves.len() - before) as u64;
        self.recording.moves_missed += count.saturating_sub(taken);
    }

    /// Returns the recording so far.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Ends the recording and returns it.
    pub(crate) fn finish(self) -> Recording {
        self.recording
    }
}

/// Returns the share of a sum in interval `number` of `of`. All shares add up to the sum.
fn part(sum: u64, number: usize, of: usize) -> u64 {
    let before = |number: usize| u128::from(sum) * number as u128 / of.max(1) as u128;
    u64::try_from(before(number + 1) - before(number)).unwrap_or(u64::MAX)
}

/// Returns the busy share that fits into an interval, rounded to millionths. The rest goes to
/// `over`, for the next interval.
fn within(busy: f64, over: &mut f64) -> f64 {
    let sum = busy + *over;
    let fits = (sum.clamp(0.0, 1.0) * 1e6).round() / 1e6;
    *over = sum - fits;
    fits
}

#[cfg(test)]
mod tests;
