//! `millrace capture`: writes a port's frames to a pcapng file.

use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::body::{CaptureBody, CaptureStart, CaptureState};
use api::client::CaptureError;
use clap::Args;
use problem::Problem;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace capture vm1 -w vm1.pcapng              # until Ctrl-C
  millrace capture vm1 -w vm1.pcapng --seconds 10 --snaplen 128
  millrace capture vm1 -w - | tcpdump -r -

The file is created with your own permissions; an existing file is never overwritten. If writing is
slower than the traffic, frames are missed and counted. Frames that the switch drops are included,
with the reason as a comment. A capture that fails, for example on a full disk, exits with 1;
traffic is not affected.")]
pub(crate) struct Arguments {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
    /// The pcapng file to create, or - for standard output.
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
    let Some(file) = &arguments.write else {
        let body = client.stop_capture(&arguments.port)?;
        return output::show(global, &body, |body| text(body, None));
    };
    let start = CaptureStart {
        port: arguments.port.clone(),
        snaplen: arguments.snaplen,
        count: arguments.count,
        seconds: arguments.seconds,
    };
    let body = client.run_capture(&start, || create(file)).map_err(|error| match error {
        CaptureError::Daemon(error) => error.into(),
        CaptureError::File(problem) => Failure::Failed(problem),
        CaptureError::Write(error, body) => {
            Failure::Failed(failed(file, &arguments.port, &error.to_string(), body.as_ref()))
        }
    })?;
    if body.state == CaptureState::Failed {
        return Err(Failure::Failed(failed(file, &arguments.port, &body.reason, Some(&body))));
    }
    if is_standard_output(file) {
        return Ok(ExitCode::SUCCESS);
    }
    output::show(global, &body, |body| text(body, Some(file)))
}

fn is_standard_output(file: &Path) -> bool {
    file == Path::new("-")
}

pub(super) fn create(file: &Path) -> Result<Box<dyn Write>, Problem> {
    if is_standard_output(file) {
        return Ok(Box::new(std::io::stdout()));
    }
    let new = OpenOptions::new().write(true).create_new(true).mode(0o640).open(file);
    let new = new.map_err(|error| {
        Problem::new(format!("the capture's file {} cannot be created", file.display()))
            .seen(error)
            .wanted("a new file in a directory that you can write to")
            .remedy("name another file; an existing file is never overwritten")
    })?;
    Ok(Box::new(new))
}

fn failed(file: &Path, port: &str, reason: &str, body: Option<&CaptureBody>) -> Problem {
    let holds = body.map_or_else(String::new, |body| {
        let (file, frames, bytes) = (file.display(), body.frames, body.bytes);
        format!("; {file} holds fewer than the captured {frames} frames ({bytes} bytes)")
    });
    Problem::new(format!("the capture on port {port} failed"))
        .seen(format!("{reason}{holds}"))
        .wanted("a file that takes every captured frame")
        .remedy(
            "free disk space, or keep less of each frame with --snaplen; traffic was not affected",
        )
}

pub(super) fn text(body: &CaptureBody, file: Option<&Path>) -> String {
    let missed = match body.missed {
        0 => String::new(),
        missed => format!(", {missed} missed because writing was slower than the traffic"),
    };
    let place = file.map_or_else(String::new, |file| format!(" in {}", file.display()));
    format!("{} frames, {} bytes{place}{missed}", body.frames, body.bytes)
}
