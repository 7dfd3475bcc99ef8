//! `millrace log`: the daemon's log level.

use crate::global::Global;
use crate::output::{self, Outcome, word};
use api::body::{LogBody, LogChange, LogLevel};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the log level, or set it until the daemon stops
    Level(Level),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace log level
  millrace log level debug
  millrace log level vhost_user=debug

Levels: off, error (a port or the daemon does not work), warn (it works with limits), info (changes
and port states), debug (everything else). Setting the level of all clears the levels of targets.
The initial level is MILLRACE_LOG, such as MILLRACE_LOG=info,vhost_user=debug; the default is info.")]
struct Level {
    /// The level of all, or of one target, named as in the log's lines [default: show the levels].
    #[arg(value_name = "LEVEL|TARGET=LEVEL", value_parser = parse)]
    change: Option<LogChange>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let Verb::Level(Level { change }) = &arguments.verb;
    let body = match change {
        Some(change) => client.set_log(change)?,
        None => client.log()?,
    };
    output::show(global, &body, text)
}

fn parse(typed: &str) -> Result<LogChange, String> {
    let (target, level) = match typed.split_once('=') {
        Some((target, level)) => (Some(target.to_owned()), level),
        None => (None, typed),
    };
    let read: Result<LogLevel, Error> = LogLevel::deserialize(level.into_deserializer());
    let level =
        read.map_err(|_| format!("`{level}` is not a level: use off, error, warn, info or debug"))?;
    Ok(LogChange { level, target })
}

fn text(body: &LogBody) -> String {
    let own = body.targets.iter().map(|(target, level)| format!("\n{target}={}", word(level)));
    format!("{}{}", word(&body.level), own.collect::<String>())
}
