//! `millrace event`: shows past events and follows new ones.

use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::body::EventBody;
use clap::Args;
use problem::Problem;
use std::process::ExitCode;
use std::time::Duration;

/// Polling interval of `--follow`.
const EVERY: Duration = Duration::from_millis(250);

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace event
  millrace event --follow
  millrace event --follow --json | jq -r .text

Prints one event per line, oldest first; with --json each line is a document. A repeated event is
one line with a count; --follow prints a further line when the count has grown.")]
pub(crate) struct Arguments {
    /// Keep printing new events until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let mut last = 0;
    loop {
        for event in client.events(last)? {
            last = last.max(event.id);
            output::print(&line(&event, global)?)?;
        }
        if !arguments.follow {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(EVERY);
    }
}

fn line(event: &EventBody, global: &Global) -> Result<String, Failure> {
    if global.json {
        let json = serde_json::to_string(event);
        return Ok(json.map_err(|error| Problem::new("writing JSON").seen(error))?);
    }
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    Ok(format!("{:>8} s  {}{times}", event.at_s, event.text))
}
