//! `millrace run`: runs the daemon in the foreground.

use crate::commands::{ferry_dock, namespace_helper};
use crate::global::Global;
use crate::output::{Failure, Outcome};
use clap::{Args, ValueEnum};

use config::Poll;
use daemon::log;
use daemon::server::{self, Options};
use devices::HostDevices;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace run -c /etc/millrace/millrace.toml

Ports added through the API survive a restart. SIGHUP rereads the file and changes only what differs
in the file's ports. SIGTERM and SIGINT stop the switch. TAP devices survive a restart by systemd or
with --take-over. A port whose device cannot be opened is broken; opening is retried every second.
MILLRACE_LOG sets the log level (error, warn, info, debug); `millrace log level` changes it later.")]
pub(crate) struct Arguments {
    /// Configuration file [default: none; only ports added through the API are opened].
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep ports added through the API in this directory [default: with the default socket
    /// /var/lib/millrace for root and $XDG_STATE_HOME/millrace for others; otherwise SOCKET.state].
    #[arg(long, value_name = "DIRECTORY", env = "MILLRACE_STATE_DIR", hide_env_values = true)]
    state_dir: Option<PathBuf>,
    /// How idle workers wait, overriding the file: poll, poll briefly and then sleep, or sleep at
    /// once.
    #[arg(long, value_name = "WHEN")]
    poll: Option<PollWhen>,
    /// Take over from the daemon at this socket, which stops: TAP ports with the same configuration
    /// keep its descriptors. If no daemon runs there, start as usual. Under systemd,
    /// `systemctl restart` does the same without this option.
    #[arg(long)]
    take_over: bool,
}

/// The values of `--poll`, see [`Poll`].
#[derive(Clone, Copy, ValueEnum)]
enum PollWhen {
    Always,
    Adaptive,
    Never,
}

impl From<PollWhen> for Poll {
    fn from(when: PollWhen) -> Poll {
        match when {
            PollWhen::Always => Poll::Always,
            PollWhen::Adaptive => Poll::Adaptive,
            PollWhen::Never => Poll::Never,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let levels = std::env::var("MILLRACE_LOG").ok();
    log::start(levels.as_deref()).map_err(Failure::Failed)?;
    let options = Options {
        file: arguments.config.clone(),
        socket: global.socket.clone(),
        state_directory: arguments.state_dir.clone(),
        poll: arguments.poll.map(Poll::from),
        take_over: arguments.take_over,
        sandbox: Some(&[namespace_helper::COMMAND]),
        post_copy: Some(&[ferry_dock::COMMAND]),
    };
    server::run(&options, Box::new(HostDevices::default())).map_err(Failure::Failed)?;
    Ok(ExitCode::SUCCESS)
}
