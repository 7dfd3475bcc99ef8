//! `millrace vmmq record`: writes the loads that the balancer sees to a file for the simulator.

use super::vmmq_recorder::{Added, Recorder};
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::client::Client;
use clap::{Args, ValueHint};
use daemon::Replacement;
use lab::Interrupt;
use problem::Problem;
use serde::Serialize;
use simulator::Recording;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Seconds between lines of progress when standard error is not a terminal.
const PLAIN_EVERY: u64 = 10;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace vmmq record --seconds 60 --output static.json
  millrace vmmq record --seconds 60 --interval 100 > load.json
  millrace lab vmmq --sim --recorded static.json
  millrace lab vmmq --sim --recorded static.json --real dynamic.json

Records per interval the busy share, worker, frames and bytes of each queue (at an uplink with
indirection tables: of each entry with frames), the busy share of each worker, and moves. The
command reads the daemon's counters once per interval; the daemon stores nothing. On Ctrl-C, on an
error, or when the recording becomes too large, the recording ends early and is written as it is.
Without --output it goes to standard output.")]
pub(crate) struct Arguments {
    /// How long to record.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The file to write; an existing file is replaced when the recording ends.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Length of an interval in milliseconds; the balancer decides every 20 ms.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(20..=1000))]
    interval: u64,
}

/// What was written, and to which file.
#[derive(Serialize)]
struct Written {
    file: PathBuf,
    seconds: f64,
    intervals: usize,
    workers: usize,
    items: usize,
    moves: usize,
    moves_missed: u64,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let interrupt = Interrupt::default();
    let failed = |error: lab::LabError| Failure::Failed(Problem::new(error.to_string()));
    interrupt.watch_signals().map_err(failed)?;
    let out = match &arguments.output {
        Some(path) => Some((path, Replacement::begin(path).map_err(unwritten(path))?)),
        None => None,
    };
    let mut recorder = Recorder::new(arguments.interval(), client.vmmq_load()?);
    let ended = record(&mut recorder, &client, arguments, &interrupt);
    let recording = recorder.finish();
    if recording.intervals() == 0 {
        ended?;
        return Err(nothing().into());
    }
    // After an error, what was recorded before is still written.
    match out {
        Some((path, out)) => {
            write(&out.file, &recording).and_then(|()| out.finish()).map_err(unwritten(path))?;
            output::show(global, &written(path, &recording), text)?;
        }
        None => write(io::stdout().lock(), &recording)?,
    }
    ended.map(|()| ExitCode::SUCCESS)
}

impl Arguments {
    fn interval(&self) -> Duration {
        Duration::from_millis(self.interval)
    }

    /// Returns the number of intervals of a complete recording.
    fn intervals(&self) -> usize {
        usize::try_from(1000 * self.seconds / self.interval).unwrap_or(usize::MAX)
    }
}

fn unwritten(path: &Path) -> impl Fn(io::Error) -> Problem {
    move |error| {
        Problem::new(format!("{} cannot be written", path.display()))
            .seen(error)
            .wanted("a file that can be created, and room for it")
            .remedy("correct the path given with --output, or free disk space")
    }
}

fn nothing() -> Problem {
    Problem::new("nothing was recorded")
        .seen("no queues, or only entries without frames")
        .wanted("at least one queue or one entry with frames")
        .remedy("`millrace port list` shows the ports")
}

fn write(out: impl Write, recording: &Recording) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, recording)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Reads the counters once per interval until the time is over, Ctrl-C is pressed, or the recording
/// is full.
fn record(
    recorder: &mut Recorder,
    client: &Client,
    arguments: &Arguments,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let (interval, intervals) = (arguments.interval(), arguments.intervals());
    let mut progress = Progress { of: arguments.seconds, said: 0 };
    let begin = Instant::now();
    let mut number = 1;
    while number <= intervals {
        // Ctrl-C lets the interval end.
        let end = begin + interval * u32::try_from(number).unwrap_or(u32::MAX);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        match recorder.add(client.vmmq_load()?, intervals)? {
            Added::Moves(0) => {}
            Added::Moves(new) => recorder.add_moves(new, &client.vmmq_moves()?),
            Added::Full => {
                say(&recorder.fullness());
                return Ok(());
            }
        }
        progress.tell(begin.elapsed().as_secs(), recorder.recording().moves.len());
        if interrupt.is_set() {
            return Ok(());
        }
        // Missed intervals are skipped: the next reading covers them.
        let passed = begin.elapsed().as_nanos() / interval.as_nanos().max(1);
        number = usize::try_from(passed).unwrap_or(usize::MAX).saturating_add(1);
    }
    Ok(())
}

/// Shows progress: on a terminal one line updated every second, elsewhere a line every
/// [`PLAIN_EVERY`] seconds.
struct Progress {
    of: u64,
    said: u64,
}

impl Progress {
    fn tell(&mut self, seconds: u64, moves: usize) {
        let is_terminal = std::io::stderr().is_terminal();
        let every = if is_terminal { 1 } else { PLAIN_EVERY };
        if seconds < self.said + every {
            return;
        }
        self.said = seconds;
        let text = format!("recording: {seconds} of {} s, {moves} moves", self.of);
        match (is_terminal, seconds < self.of) {
            (true, true) => say_here(&text),
            (true, false) => say(&format!("\r{text}")),
            (false, _) => say(&text),
        }
    }
}

/// Progress that cannot be written is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn say_here(text: &str) {
    let _ = write!(std::io::stderr(), "\r{text}");
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn written(file: &Path, recording: &Recording) -> Written {
    let intervals = recording.intervals();
    Written {
        file: file.to_owned(),
        seconds: intervals as f64 * recording.interval_ms as f64 / 1e3,
        intervals,
        workers: recording.workers.len(),
        items: recording.items.len(),
        moves: recording.moves.len(),
        moves_missed: recording.moves_missed,
    }
}

fn text(written: &Written) -> String {
    let Written { file, seconds, workers, items, moves, moves_missed, .. } = written;
    let missed = match moves_missed {
        0 => String::new(),
        missed => format!(", {missed} more came too fast to record"),
    };
    format!(
        "{seconds:.2} s of {workers} workers and {items} items with {moves} moves{missed} in {}",
        file.display()
    )
}
