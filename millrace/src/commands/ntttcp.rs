//! `millrace ntttcp`: NTttcp's own command lines, in both dialects. `traffic::arguments` parses the
//! words, not clap.

use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use clap::Args;
use lab::Interrupt;
use problem::Problem;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use traffic::arguments::{self, Destination, Invocation, Request};
use traffic::{Progress, Report, Wait};

#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  millrace ntttcp -R -M 1,*,192.168.24.102 -l 64k -a 6 -t 30
  millrace ntttcp -S -M 1,*,192.168.24.102 -l 64k -a 6 -t 30
  ntttcp.exe -r -m 4,*,192.168.1.1 -p 20001 -rb 128k -t 2 -l 512

The packages install ntttcp.exe. For ntttcp: `ln -s $(command -v millrace) /usr/local/bin/ntttcp`."
)]
pub(crate) struct Arguments {
    /// Options of NTttcp for Windows or for Linux; --help lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    words: Vec<String>,
}

pub(crate) fn run(arguments: Arguments, global: &Global) -> Outcome {
    let json = global.json.then(|| "--json".to_owned());
    let invocation = arguments::parse(arguments.words.into_iter().chain(json));
    match invocation.map_err(|error| Failure::Usage(Problem::new(error.to_string())))? {
        Invocation::Help => {
            output::print(arguments::HELP)?;
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Run(request) => carry_out(&request),
    }
}

fn carry_out(request: &Request) -> Outcome {
    Interrupt(request.plan.stop.clone()).watch_signals().map_err(failed)?;
    let quiet = request.output.quiet;
    for note in request.plan.notes.iter().filter(|_| !quiet) {
        // A closed standard error is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    loop {
        let report =
            traffic::run(&request.plan, &mut |step| show_progress(&step, quiet)).map_err(failed)?;
        put(&report, request)?;
        let stopped = request.plan.stop.load(std::sync::atomic::Ordering::Relaxed);
        if !request.output.repeat || stopped {
            return Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
}

fn failed(error: impl Display) -> Failure {
    Failure::Failed(Problem::new(error.to_string()))
}

/// Prints progress to standard error, which keeps the report on standard output clean.
fn show_progress(step: &Progress, quiet: bool) {
    if quiet {
        return;
    }
    let text = match step {
        Progress::Listening(address) => format!("listening on {address}"),
        Progress::Waiting(Wait { address, is_silent, elapsed }) => format!(
            "waiting for {address}, {} s: {}",
            elapsed.as_secs(),
            if *is_silent {
                "nothing answers (firewall? wrong address?)"
            } else {
                "the port is closed (start the receiver)"
            }
        ),
        Progress::Connected(count) => format!("{count} connected"),
        Progress::Unsynchronised => {
            "data arrived without synchronisation: if the sender runs with -ns (-N), so must the receiver; Windows \
             NTttcp's synchronisation needs the Windows dialect"
                .to_owned()
        }
        Progress::Tokens(host) => format!(
            "{host} accepts data but not ntttcp-for-linux's synchronisation: trying Windows NTttcp's; if {host} runs \
             with -ns (-N), so must the sender"
        ),
        Progress::AwaitingOthers => "waiting for more senders".to_owned(),
        Progress::WarmUp => "warming up".to_owned(),
        Progress::Measuring => "measuring".to_owned(),
        Progress::Rate { bytes_per_s } => format!("{:.1} MB/s", bytes_per_s / 1_048_576.0),
        Progress::CoolDown => "cooling down".to_owned(),
    };
    // A closed standard error is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn put(report: &Report, request: &Request) -> Result<(), Failure> {
    let wanted = &request.output;
    if let Some(destination) = &wanted.json {
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Problem::new("writing JSON").seen(error))?;
        write_to(destination, &json)?;
    }
    if let Some(path) = &wanted.linux_json {
        write_file(path, &format!("{:#}\n", report.to_linux_json().map_err(failed)?))?;
    }
    if let Some(destination) = &wanted.xml {
        write_to(destination, &report.to_xml().map_err(failed)?)?;
    }
    if let Some(path) = &wanted.log {
        write_file(path, &report.to_text().map_err(failed)?)?;
    }
    let taken = [&wanted.json, &wanted.xml].contains(&&Some(Destination::Standard));
    if taken || wanted.quiet {
        return Ok(());
    }
    output::print(&report.to_text().map_err(failed)?)
}

fn write_to(destination: &Destination, text: &str) -> Result<(), Failure> {
    match destination {
        Destination::Standard => output::print(text),
        Destination::File(path) => write_file(path, text),
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::Failed(
            Problem::new(format!("writing {}", path.display()))
                .seen(error)
                .wanted("a file that you may write to, and room for it")
                .remedy("name another file, or free disk space"),
        )
    })
}
