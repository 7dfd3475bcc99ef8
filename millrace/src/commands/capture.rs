//! `millrace capture`: what passes a port, in a file.

use crate::cli::Global;
use crate::output::{self, Failure, Outcome};
use clap::Args;
use control::Problem;
use control::body::{CaptureBody, CaptureStart, CaptureState};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace capture vm1 -w vm1.pcapng              # until Ctrl-C
  millrace capture vm1 -w vm1.pcapng --seconds 10 --snaplen 128

The daemon creates the file, in a directory it can write to, and never overwrites an existing file.
Users other than root and the daemon's own name a file in /var/lib/millrace/captures.
Dropped frames are included, with the reason as a comment.
A capture that fails (on a full disk, for example) exits with 1; traffic is not affected.")]
pub(crate) struct Arguments {
    /// The port.
    port: String,
    /// The pcapng file to create.
    #[arg(short, long, value_name = "FILE", required_unless_present = "stop")]
    write: Option<PathBuf>,
    /// Keep at most this many bytes of each frame.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..=262_144))]
    snaplen: Option<u32>,
    /// Stop after at least this many frames.
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Stop the running capture of this port.
    #[arg(long, conflicts_with = "write")]
    stop: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let body = match &arguments.write {
        None => client.stop_capture(&arguments.port)?,
        Some(file) => client.run_capture(&CaptureStart {
            port: arguments.port.clone(),
            file: absolute(file)?,
            snaplen: arguments.snaplen,
            count: arguments.count,
            seconds: arguments.seconds,
        })?,
    };
    if body.state == CaptureState::Failed {
        return Err(Failure::Failed(failed(&body)));
    }
    output::show(global, &body, text)
}

/// The daemon has another working directory.
fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|error| {
        Failure::Usage(
            Problem::new("not a file name").seen(error).wanted("a path").remedy("name a file"),
        )
    })
}

fn failed(body: &CaptureBody) -> Problem {
    let file = body.file.display();
    Problem::new(format!("the capture at port {} has failed", body.port))
        .seen(format!(
            "{}; {file} holds {} frames in {} bytes",
            body.reason, body.frames, body.bytes
        ))
        .wanted("a capture that runs until it is stopped")
        .remedy(
            "free disk space, or keep less of each frame with --snaplen; traffic was not affected",
        )
}

fn text(body: &CaptureBody) -> String {
    let missed = match body.missed {
        0 => String::new(),
        missed => format!(", {missed} missed because the disk was slower than the traffic"),
    };
    format!("{} frames, {} bytes in {}{missed}", body.frames, body.bytes, body.file.display())
}
