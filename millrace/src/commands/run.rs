//! `millrace run`: the daemon in the foreground.

use crate::cli::Global;
use crate::output::{Failure, Outcome};
use clap::{Args, ValueEnum};

use control::config::Poll;
use control::daemon::{self, Options};
use control::devices::HostDevices;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace run -c /etc/millrace/millrace.toml

Ports added by the API are kept, and there again after a restart. SIGHUP reads the file again and changes only what
differs in the file's ports. SIGTERM and SIGINT stop the switch.
TAP devices stay over a restart by systemd, and with --take-over.
A port whose device does not open is shown as broken and tried again every second.
MILLRACE_LOG sets the log level (error, warn, info, debug).")]
pub(crate) struct Arguments {
    /// Configuration file; without one the switch starts with no ports.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep ports added by the API in this directory [default: /var/lib/millrace for root and $XDG_STATE_HOME/millrace for others
    /// at the usual socket; else SOCKET.state].
    #[arg(long, value_name = "DIRECTORY", env = "MILLRACE_STATE_DIR", hide_env_values = true)]
    state_dir: Option<PathBuf>,
    /// How idle workers wait, overriding the file: keep polling, poll briefly and then sleep, or sleep at once.
    #[arg(long, value_name = "WHEN")]
    poll: Option<PollWhen>,
    /// Take over from the daemon at this socket: it stops, and TAP ports that are configured alike go on with its descriptors.
    /// Without one this starts as usual. Under systemd `systemctl restart` does the same without this option.
    #[arg(long)]
    take_over: bool,
}

/// [`Poll`], as it is typed.
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
    let filter = EnvFilter::try_from_env("MILLRACE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let options = Options {
        file: arguments.config.clone(),
        socket: global.socket.clone(),
        state_directory: arguments.state_dir.clone(),
        poll: arguments.poll.map(Poll::from),
        take_over: arguments.take_over,
        sandbox: true,
    };
    daemon::run(&options, Box::new(HostDevices::default())).map_err(Failure::Failed)?;
    Ok(ExitCode::SUCCESS)
}
