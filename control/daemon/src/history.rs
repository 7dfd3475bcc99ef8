//! What passed in the last ten minutes, by the second, and in the last 24 hours, by the minute: for
//! the switch and for each port.
//!
//! The poll takes the counters once a second; nothing here runs per frame, and there is no thread of
//! its own. A value is 16 bits (`cell`), so a port that is never idle takes 22 KB: 6.8 of seconds
//! and 15.4 of minutes. An idle hour takes nothing, so an idle port takes 2 KB. Memory is bounded:
//! the first 2,048 ports have seconds, and the minutes of more than 2,700 ports reach back less than
//! a day; with 10,000 ports all take at most 56 MB, and go back six hours.
//!
//! The history is kept over a restart (`file`). Cells are numbered by the time since 1970, on a clock
//! of its own: it begins with the wall clock, or behind what was kept if that is later (a host
//! without a clock of its own starts in the past), and a wall clock that is set later moves nothing.

mod cell;
mod file;
mod series;
mod track;

use api::body::{HistoryBody, HistoryResolution};
use cell::decode;
pub(crate) use file::{Kept, from_bytes};
use problem::Problem;
use series::{BLOCK, CELLS, Series};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use track::{MINUTES, Track};

/// Counts of a port: bytes in and out, frames in and out, drops.
const OF_PORT: usize = 5;
/// Those of all ports, the workers' busy time in microseconds, and the number of findings.
const OF_SWITCH: usize = 7;
/// Values of the switch that are counts.
const SUMS: usize = 6;
/// Number of ports with seconds.
const WITH_SECONDS: usize = 2048;
/// Most bytes of all minutes.
const OF_MINUTES: usize = 40 << 20;
/// The highest value of a spark line: the highest digit to base 36.
const HIGHEST: u32 = 35;
/// Bytes of an hour of a port.
const HOUR: usize = CELLS * OF_PORT * 2;
/// Returns the longest range that is told, in seconds.
pub(crate) const fn longest(resolution: HistoryResolution) -> u64 {
    match resolution {
        HistoryResolution::Second => 600,
        HistoryResolution::Minute => 24 * 3600,
    }
}

type PortTrack = Track<OF_PORT, OF_PORT>;
type SwitchTrack = Track<OF_SWITCH, SUMS>;

/// Counters of a port, in the order of [`OF_PORT`].
pub(crate) type PortReading = [u64; OF_PORT];

/// What a poll reads.
pub(crate) struct Reading<'r> {
    /// By name: all ports of the configuration, also those that are not open.
    pub(crate) ports: Vec<(&'r str, PortReading)>,
    /// Time that workers were busy since they started, in microseconds.
    pub(crate) busy_us: u64,
    /// Errors and warnings now.
    pub(crate) findings: u64,
}

/// The history of the switch and of its ports.
pub(crate) struct History {
    started: (Instant, SystemTime),
    /// The first poll, and the second that it ended. Polls are a second apart from this one, so
    /// that one that comes a little late still is of its own second.
    anchor: Option<(Instant, u64)>,
    /// The last second of the process before. This one begins behind it.
    resumed: u64,
    /// The second that the last poll ended.
    newest: u64,
    /// The sum of all ports so far: those that were removed stay in it.
    sum: PortReading,
    switch: SwitchTrack,
    ports: BTreeMap<String, PortTrack>,
}

impl History {
    /// Creates an empty history of a switch that started then, by both clocks.
    pub(crate) fn new(now: Instant, started: SystemTime) -> History {
        History {
            started: (now, started),
            anchor: None,
            resumed: 0,
            newest: 0,
            sum: [0; OF_PORT],
            switch: Track::new(true),
            ports: BTreeMap::new(),
        }
    }

    /// Takes the counters of a poll. `now` never runs backwards.
    pub(crate) fn take(&mut self, now: Instant, reading: Reading<'_>) {
        let second = self.second(now);
        if second <= self.newest {
            // Two polls in one second: the next one has what both have counted.
            return;
        }
        let elapsed = if self.newest == 0 { 1 } else { second - self.newest };
        self.newest = second;
        let hours = hours(reading.ports.len());
        let mut with_seconds = self.ports.values().filter(|track| track.seconds.is_some()).count();
        for (name, counters) in reading.ports {
            if !self.ports.contains_key(name) {
                with_seconds += 1;
                self.ports.insert(name.to_owned(), Track::new(with_seconds <= WITH_SECONDS));
            }
            let Some(track) = self.ports.get_mut(name) else { continue };
            let growth = track.take(second, elapsed, counters, hours);
            self.sum.iter_mut().zip(growth).for_each(|(sum, growth)| *sum += growth);
        }
        // Removed ports were not in the reading.
        self.ports.retain(|_, track| track.looked == second);
        let [bytes_in, bytes_out, frames_in, frames_out, drops] = self.sum;
        let whole =
            [bytes_in, bytes_out, frames_in, frames_out, drops, reading.busy_us, reading.findings];
        self.switch.take(second, elapsed, whole, MINUTES);
    }

    /// Returns the number of the second that ends at a poll.
    fn second(&mut self, now: Instant) -> u64 {
        let ((instant, wall), resumed) = (self.started, self.resumed);
        let (first, number) = *self.anchor.get_or_insert_with(|| {
            let wall = wall + now.saturating_duration_since(instant);
            (now, unix(wall).max(resumed + 1))
        });
        let half = Duration::from_millis(500);
        number + (now.saturating_duration_since(first) + half).as_secs()
    }

    /// Returns the milliseconds since 1970, by the clock of this history.
    pub(crate) fn unix_ms(&self, now: Instant) -> u64 {
        let (instant, wall) = self.started;
        let (first, number) = self.anchor.unwrap_or((instant, unix(wall).max(self.resumed + 1)));
        let since = now.saturating_duration_since(first).as_millis();
        number * 1000 + u64::try_from(since).unwrap_or(0)
    }

    /// Goes on with the history of the process before. One that ends in a time to come goes on from
    /// there, which is returned: whether the clock is wrong now, or was then, is not known here.
    pub(crate) fn resume(&mut self, kept: Kept) -> Option<Problem> {
        let (switch, ports) = kept;
        let newest = switch.seconds.as_ref().map_or(0, |seconds| seconds.newest);
        let newest = newest.max(switch.minutes.newest * BLOCK);
        self.resumed = newest;
        self.switch = switch;
        self.ports = ports;
        self.ports.values_mut().skip(WITH_SECONDS).for_each(|track| track.seconds = None);
        let ahead = newest.saturating_sub(unix(self.started.1));
        (ahead > BLOCK).then(|| {
            Problem::new("the history of traffic ends in a time to come, and goes on from there")
                .seen(format!("{ahead} s ahead of the clock of this host"))
                .wanted("a clock that is set before the daemon starts")
                .remedy(
                    "if the clock was behind, none; if it had been ahead, stop the daemon, remove \
                     `history` in its state directory, and start it",
                )
        })
    }

    /// Returns the history as a file, with seconds or without.
    pub(crate) fn to_bytes(&self, with_seconds: bool) -> Vec<u8> {
        file::to_bytes(&self.switch, &self.ports, with_seconds)
    }

    /// Returns the last `range_s` seconds of a port or of the switch. By the minute, these are
    /// minutes that have passed.
    pub(crate) fn body(
        &self,
        port: Option<&str>,
        range_s: u64,
        resolution: HistoryResolution,
    ) -> HistoryBody {
        let step = resolution.seconds();
        let end = if step == 1 { self.newest + 1 } else { self.newest / BLOCK };
        let numbers = end.saturating_sub(range_s / step)..end;
        let port = port.map(str::to_owned);
        let mut body = HistoryBody {
            from_s: numbers.start * step,
            resolution_s: step,
            ..HistoryBody::default()
        };
        if let Some(port) = port {
            // A port that was just added has a track at the next poll.
            let track = self.ports.get(&port);
            let cells = track.map(|track| cells(track, resolution, numbers.clone()));
            fill(&mut body, &cells.unwrap_or_else(|| vec![None; numbers.count()]));
            body.port = Some(port);
        } else {
            let cells = cells(&self.switch, resolution, numbers);
            fill(&mut body, &cells);
            body.busy_us = column(&cells, 5);
            body.findings = column(&cells, 6);
        }
        body
    }

    /// Returns for each port, by name, the highest traffic of each two minutes of the last hour, as a
    /// share of the port's highest.
    pub(crate) fn sparks(&self) -> BTreeMap<String, Vec<Option<u32>>> {
        let end = self.newest / BLOCK;
        let spark = |(name, track): (&String, &PortTrack)| (name.clone(), spark(track, end));
        self.ports.iter().map(spark).collect()
    }
}

/// Returns the traffic of a port in the hour before a minute, from 0 to [`HIGHEST`]; `None` where
/// nothing is known.
fn spark(track: &PortTrack, end: u64) -> Vec<Option<u32>> {
    let cells = cells(track, HistoryResolution::Minute, end.saturating_sub(60)..end);
    let bytes = |cell: &[u64; OF_PORT]| cell.iter().take(2).sum::<u64>();
    let highest = |pair: &[Option<[u64; OF_PORT]>]| pair.iter().flatten().map(bytes).max();
    let highest: Vec<Option<u64>> = cells.chunks(2).map(highest).collect();
    let most = highest.iter().flatten().max().copied().unwrap_or(0).max(1);
    let share = |bytes: u64| (bytes * u64::from(HIGHEST)).div_ceil(most);
    let share = |bytes: u64| u32::try_from(share(bytes)).unwrap_or(HIGHEST);
    highest.into_iter().map(|bytes| bytes.map(share)).collect()
}

/// Returns the seconds since 1970.
fn unix(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns how many hours so many ports may keep.
fn hours(ports: usize) -> usize {
    (OF_MINUTES / HOUR / ports.max(1)).clamp(2, MINUTES)
}

fn cells<const N: usize, const SUMS: usize>(
    track: &Track<N, SUMS>,
    resolution: HistoryResolution,
    numbers: std::ops::Range<u64>,
) -> Vec<Option<[u64; N]>> {
    let series = match resolution {
        HistoryResolution::Second => track.seconds.as_ref(),
        HistoryResolution::Minute => Some(&track.minutes),
    };
    let cell = |number| series.and_then(|series: &Series<N>| series.get(number));
    numbers.map(|number| cell(number).map(|cell| cell.map(decode))).collect()
}

fn fill<const N: usize>(body: &mut HistoryBody, cells: &[Option<[u64; N]>]) {
    body.ingress_bytes = column(cells, 0);
    body.egress_bytes = column(cells, 1);
    body.ingress_frames = column(cells, 2);
    body.egress_frames = column(cells, 3);
    body.dropped_frames = column(cells, 4);
}

fn column<const N: usize>(cells: &[Option<[u64; N]>], place: usize) -> Vec<Option<u64>> {
    cells.iter().map(|cell| cell.and_then(|cell| cell.get(place).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::track::SECONDS;
    use super::*;

    fn at(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    fn reading<'r>(ports: &[(&'r str, u64)]) -> Reading<'r> {
        let ports = ports.iter().map(|(name, count)| (*name, [*count; OF_PORT]));
        Reading { ports: ports.collect(), busy_us: 0, findings: 1 }
    }

    fn history(start: Instant) -> History {
        History::new(start, SystemTime::UNIX_EPOCH + Duration::from_hours(1))
    }

    /// A poll that comes late is of its second, as is the next one.
    #[test]
    fn a_poll_that_is_late_moves_nothing_to_another_second() {
        let start = Instant::now();
        let mut history = history(start);
        for (milliseconds, count) in [(990, 1), (2390, 3), (2990, 6), (4290, 10), (5000, 15)] {
            history.take(at(start, milliseconds), reading(&[("a", count)]));
        }
        let body = history.body(Some("a"), 5, HistoryResolution::Second);
        assert_eq!(body.ingress_bytes, [1, 2, 3, 4, 5].map(Some));
        assert_eq!(body.from_s, 3600);
    }

    /// The switch's sum keeps what a removed port has carried, and a port that is opened anew counts
    /// from zero.
    #[test]
    fn the_switch_has_what_its_ports_have_and_forgets_ports_that_are_removed() {
        let start = Instant::now();
        let mut history = history(start);
        let polls: [&[(&str, u64)]; 4] = [&[("a", 5), ("b", 2)], &[("a", 6)], &[("a", 1)], &[]];
        for (second, ports) in (1..).zip(polls) {
            history.take(at(start, second * 1000), reading(ports));
        }
        let body = history.body(None, 4, HistoryResolution::Second);
        assert_eq!(body.dropped_frames, [7, 1, 1, 0].map(Some));
        assert_eq!(body.findings, [1; 4].map(Some));
        let gone = history.body(Some("a"), 4, HistoryResolution::Second);
        assert_eq!(gone.dropped_frames, [None; 4]);
    }

    /// The second in which the process before ended was overwritten by the one after it.
    #[test]
    fn a_restart_within_a_second_loses_nothing() {
        let start = Instant::now();
        let mut before = history(start);
        before.take(at(start, 1000), reading(&[("a", 5)]));
        let bytes = before.to_bytes(true);
        let mut after = history(start);
        assert!(after.resume(from_bytes(&bytes).unwrap()).is_none());
        after.take(at(start, 100), reading(&[("a", 2)]));
        let body = after.body(Some("a"), 3, HistoryResolution::Second);
        assert_eq!(body.egress_frames, [None, Some(5), Some(2)]);
    }

    /// A host that starts in the past until NTP sets its clock lost a day without a word, and the
    /// page asked for times of another clock.
    #[test]
    fn a_history_of_a_time_to_come_goes_on_and_is_told() {
        let start = Instant::now();
        let mut before = history(start);
        before.take(at(start, 1000), reading(&[("a", 5)]));
        let bytes = before.to_bytes(true);
        let mut after = History::new(start, SystemTime::UNIX_EPOCH + Duration::from_mins(1));
        let told = after.resume(from_bytes(&bytes).unwrap()).unwrap();
        assert_eq!(told.seen, "3541 s ahead of the clock of this host");
        for (milliseconds, count) in [(100, 2), (1100, 9)] {
            after.take(at(start, milliseconds), reading(&[("a", count)]));
        }
        let body = after.body(Some("a"), 3, HistoryResolution::Second);
        assert_eq!(body.egress_frames, [5, 2, 7].map(Some));
        assert_eq!(body.from_s + 2, after.unix_ms(at(start, 1100)) / 1000);
    }

    #[test]
    fn only_minutes_that_have_passed_are_told_and_gaps_are_unknown() {
        let start = Instant::now();
        let mut history = history(start);
        for second in (0..90).chain(200..250) {
            history.take(at(start, second * 1000), reading(&[("a", second)]));
        }
        let body = history.body(Some("a"), 300, HistoryResolution::Minute);
        assert_eq!(body.ingress_frames, [None, Some(59), Some(60), Some(60), Some(60)]);
        assert_eq!((body.from_s, body.resolution_s), (3540, 60));
    }

    /// The bytes that the module's documentation states.
    #[test]
    fn the_memory_is_bounded() {
        let mut track = PortTrack::new(true);
        for second in 1..=25 * 3600 {
            track.take(second, 1, [second; OF_PORT], MINUTES);
        }
        let bytes = track.seconds.as_ref().unwrap().bytes() + track.minutes.bytes();
        assert!((21_000..24_000).contains(&bytes), "{bytes}");
        assert_eq!((hours(2700), hours(10_000)), (25, 6));
        assert!(10_000 * (hours(10_000) * HOUR) + WITH_SECONDS * SECONDS * HOUR < 56_000_000);
    }
}
