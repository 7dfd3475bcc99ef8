//! `millrace vmmq record`: what the balancer sees, written to a file that the simulator reads.

use super::vmmq_recorder::Recorder;
use crate::cli::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, ValueHint};
use control::Problem;
use control::client::Client;
use lab::Interrupt;
use serde::Serialize;
use simulator::Recording;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Values of the largest recording: items times intervals. It takes some 600 MB of memory here, none in the daemon.
const MOST_VALUES: usize = 20_000_000;

/// Seconds between lines of progress that do not go to a terminal.
const PLAIN_EVERY: u64 = 10;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace vmmq record --seconds 60 --output static.json
  millrace vmmq record --seconds 60 --interval 100 > load.json
  millrace lab vmmq --sim --recorded static.json
  millrace lab vmmq --sim --recorded static.json --real dynamic.json

Records, interval by interval, the busy share, worker, frames and bytes of each queue (at an
uplink with indirection tables of each entry that has frames), the busy share of each worker, and
moves. The daemon keeps nothing: it is asked for its counters once an interval. Ctrl-C ends the
recording early and writes what there is. Without --output the recording is printed.")]
pub(crate) struct Arguments {
    /// How long.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The file to write; one that exists is replaced.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Milliseconds of an interval; the balancer decides every 20.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(20..=1000))]
    interval: u64,
}

/// What was written where.
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
    // A file that cannot be written is told before the recording, not after it.
    let out = arguments
        .output
        .as_ref()
        .map(|path| {
            File::create(path).map_err(|error| {
                Problem::new(format!("{} cannot be written", path.display()))
                    .seen(error)
                    .wanted("a file that can be created")
                    .remedy("correct the path given with --output")
            })
        })
        .transpose()?;
    let recording = record(&client, arguments, &interrupt)?;
    match (out, &arguments.output) {
        (Some(out), Some(path)) => {
            write(out, &recording)?;
            output::show(global, &written(path.clone(), &recording), text)
        }
        _ => {
            write(std::io::stdout().lock(), &recording)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write(out: impl Write, recording: &Recording) -> Result<(), Failure> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, recording).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Asks once an interval until the time is over, or Ctrl-C.
fn record(
    client: &Client,
    arguments: &Arguments,
    interrupt: &Interrupt,
) -> Result<Recording, Failure> {
    let interval = Duration::from_millis(arguments.interval);
    let mut progress = Progress { of: arguments.seconds, said: 0 };
    let mut recorder = Recorder::new(interval, client.vmmq_load()?);
    let begin = Instant::now();
    let intervals =
        u32::try_from(1000 * arguments.seconds / arguments.interval).unwrap_or(u32::MAX);
    let mut number = 1;
    while number <= intervals {
        // Ctrl-C lets the interval end.
        std::thread::sleep((begin + interval * number).saturating_duration_since(Instant::now()));
        let new = recorder.add(&client.vmmq_load()?)?;
        if new > 0 {
            recorder.add_moves(new, &client.vmmq_moves()?);
        }
        progress.tell(begin.elapsed().as_secs(), recorder.recording().moves.len());
        // Intervals that were missed are not asked for one after the other.
        let passed = begin.elapsed().as_nanos() / interval.as_nanos().max(1);
        number = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
        if interrupt.is_set() {
            break;
        }
        if recorder.values() > MOST_VALUES {
            say(&format!(
                "ends early: {MOST_VALUES} values is the most; record fewer seconds, or longer intervals"
            ));
            break;
        }
    }
    let recording = recorder.finish();
    if recording.intervals() == 0 {
        return Err(Problem::new("nothing was recorded")
            .seen("a switch without open ports")
            .wanted("at least one queue")
            .remedy("`millrace port list` shows the ports")
            .into());
    }
    Ok(recording)
}

/// Says how far it is: on a terminal once a second in one line, else a line now and then.
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
fn written(file: PathBuf, recording: &Recording) -> Written {
    let intervals = recording.intervals();
    Written {
        file,
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
        missed => format!(", {missed} more came too fast to be recorded"),
    };
    format!(
        "{seconds:.2} s of {workers} workers and {items} items with {moves} moves{missed} in {}",
        file.display()
    )
}
