//! Writes the log's lines on a thread of its own, so that a reader that stops reading stops only
//! that thread. Lines for which there is no room are dropped, counted and reported in the log.
//!
//! Not `tracing-appender`: with a full queue its guard prints to standard output at the end, which
//! waits forever if that is the same pipe. It also starts its thread at once, which must inherit the
//! sandbox.

use problem::Problem;
use std::io::{self, Write, stderr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of lines that wait, without those being written.
const MOST: usize = 1 << 20;
/// Longest time to wait for the reader when the process ends.
const AT_END: Duration = Duration::from_secs(1);

static QUEUE: Queue = Queue::new();

/// The log's writer: standard error, through the queue once its thread runs.
pub(super) struct Queued;

/// Starts the thread. Until then lines are written by whoever logs them. The thread inherits the
/// restrictions of the caller.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start() -> Result<(), Problem> {
    if std::mem::replace(&mut QUEUE.lock().is_served, true) {
        return Ok(());
    }
    let tell = |dropped| {
        tracing::warn!(target: "control::log", dropped, "lines of the log were dropped: its reader did not keep up");
    };
    let started = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || while QUEUE.write_next(&mut stderr(), tell) {});
    started.map_err(|error| {
        QUEUE.lock().is_served = false;
        Problem::new("the thread that writes the log cannot be started").seen(error)
    })?;
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        flush();
        print(panic);
    }));
    Ok(())
}

/// Waits until all lines are written, or for a second.
pub(super) fn flush() {
    QUEUE.flush(AT_END);
}

/// Returns the number of lines that were dropped so far.
pub(super) fn dropped() -> u64 {
    QUEUE.lock().dropped
}

impl MakeWriter<'_> for Queued {
    type Writer = Queued;

    fn make_writer(&self) -> Queued {
        Queued
    }
}

/// Each call is one line: the formatting layer writes lines whole.
impl Write for Queued {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !QUEUE.put(line) {
            return stderr().write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Queue {
    waiting: Mutex<Waiting>,
    /// Signalled when a line has come. The thread waits for it.
    news: Condvar,
    /// Signalled when lines were written. Who flushes waits for it.
    written: Condvar,
}

struct Waiting {
    /// The lines to write next.
    lines: Vec<u8>,
    /// Whether earlier lines are being written.
    is_writing: bool,
    /// Whether a thread writes.
    is_served: bool,
    /// Lines dropped so far, and how many of them were reported.
    dropped: u64,
    told: u64,
}

impl Queue {
    const fn new() -> Queue {
        let waiting =
            Waiting { lines: Vec::new(), is_writing: false, is_served: false, dropped: 0, told: 0 };
        Queue { waiting: Mutex::new(waiting), news: Condvar::new(), written: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line, or drops and counts it if there is no room. Returns `false` if no thread
    /// writes.
    fn put(&self, line: &[u8]) -> bool {
        let mut waiting = self.lock();
        if !waiting.is_served {
            return false;
        }
        if waiting.lines.is_empty() || waiting.lines.len() + line.len() <= MOST {
            waiting.lines.extend_from_slice(line);
            self.news.notify_one();
        } else {
            waiting.dropped += 1;
        }
        true
    }

    /// Waits for lines and writes them. `tell` logs how many were dropped behind them: there is
    /// room for its line before the write, and it stands where they would have stood.
    fn write_next(&self, out: &mut impl Write, tell: impl Fn(u64)) -> bool {
        let idle = |waiting: &mut Waiting| waiting.is_served && waiting.lines.is_empty();
        let waiting = self.news.wait_while(self.lock(), idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut waiting.lines);
        let untold = waiting.dropped - waiting.told;
        waiting.told = waiting.dropped;
        waiting.is_writing = true;
        drop(waiting);
        if untold > 0 {
            tell(untold);
        }
        // A log without a reader is no reason to stop.
        let _ = out.write_all(&lines);
        let mut waiting = self.lock();
        waiting.is_writing = false;
        self.written.notify_all();
        waiting.is_served
    }

    fn flush(&self, limit: Duration) {
        let busy = |waiting: &mut Waiting| {
            waiting.is_served && (waiting.is_writing || !waiting.lines.is_empty())
        };
        let _ = self.written.wait_timeout_while(self.lock(), limit, busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, pipe};
    use std::sync::Arc;
    use std::time::Instant;

    fn served() -> Arc<Queue> {
        let queue = Queue::new();
        queue.lock().is_served = true;
        Arc::new(queue)
    }

    /// Whoever logged waited forever for a reader that had stopped: the switch's thread first.
    #[test]
    fn a_reader_that_stops_reading_holds_nobody_and_learns_how_many_lines_it_missed() {
        let (reader, mut writer) = pipe().unwrap();
        let queue = served();
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            let of_tell = Arc::clone(&of_thread);
            let tell = |dropped| assert!(of_tell.put(format!("dropped {dropped}\n").as_bytes()));
            while of_thread.write_next(&mut writer, tell) {}
        });
        // More than the pipe and the queue hold, twice over.
        let line = |number| format!("{number:0>1023}\n");
        let all = 4 * (MOST + (64 << 10)) / 1024;
        (0..all).for_each(|number| assert!(queue.put(line(number).as_bytes())));
        let dropped = usize::try_from(queue.lock().dropped).unwrap();
        assert!(dropped > 0);
        queue.flush(Duration::from_millis(1));
        // Once it reads again: a line without end, or the report, and then everything.
        let (mut read, mut told) = (0, 0);
        for text in BufReader::new(reader).lines().map(Result::unwrap) {
            match text.strip_prefix("dropped ") {
                Some(number) => told += number.parse::<usize>().unwrap(),
                None => read += 1,
            }
            if read + told == all {
                break;
            }
        }
        assert_eq!(told, dropped);
        queue.flush(Duration::from_secs(60));
        queue.lock().is_served = false;
        queue.news.notify_one();
        thread.join().unwrap();
    }

    #[test]
    fn a_flush_waits_for_the_last_line_and_not_at_all_without_a_thread() {
        let queue = served();
        assert!(queue.put(b"last\n"));
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            let mut out = Vec::new();
            of_thread.write_next(&mut out, |_| ());
            out
        });
        queue.flush(Duration::from_secs(60));
        assert!(queue.lock().lines.is_empty() && !queue.lock().is_writing);
        assert_eq!(thread.join().unwrap(), b"last\n");
        let direct = Queue::new();
        assert!(!direct.put(b"first\n"));
        let before = Instant::now();
        direct.flush(Duration::from_secs(60));
        assert!(before.elapsed() < Duration::from_secs(60));
    }
}
