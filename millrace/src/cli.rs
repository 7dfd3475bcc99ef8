//! What can be typed.

use crate::commands::{
    acl, capture, check, completions, config, connections, lab, lab_host, ladder, man, migrate,
    mtu, ntttcp, openapi, port, queue, report, rsc, rss, run, status, sweep, team, top, validate,
    vmmq,
};
use crate::output::{Failure, unreachable};
use clap::{Args, Parser, Subcommand};
use control::client::Client;
use std::path::PathBuf;

/// Shown at the end of every help.
const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed or something was found, 2 wrong usage, 3 no daemon answers.";

/// A user-space virtual switch that brings Hyper-V's network path to Linux hosts.
#[derive(Parser)]
#[command(name = "millrace", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// The daemon's socket [default: /run/millrace/api.sock; below $XDG_RUNTIME_DIR where not root].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "MILLRACE_SOCKET",
        value_name = "PATH",
        hide_env_values = true
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON, also for errors.
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub(crate) json: bool,
}

impl Global {
    /// Where the daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(control::daemon::default_path)
    }

    /// The daemon.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::connect(&self.socket()).map_err(unreachable)
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the switch in the foreground
    Run(run::Arguments),
    /// Show ports, rates, workers and health at a glance
    Status(status::Arguments),
    /// Show rates live
    Top(top::Arguments),
    /// Add, remove, show, change and list ports
    Port(port::Arguments),
    /// Show, add and remove the rules of a port
    Acl(acl::Arguments),
    /// Show and toggle receive segment coalescing
    Rsc(rsc::Arguments),
    /// Show and change how frames are spread over a port's queues
    Rss(rss::Arguments),
    /// Show uplinks of several members, change the members, and pin vNICs to them
    Team(team::Arguments),
    /// Show queues with their workers and loads, and move them
    Queue(queue::Arguments),
    /// Show what dynamic VMMQ moved, and why; record loads
    Vmmq(vmmq::Arguments),
    /// Show, compare, replace and save the configuration
    Config(config::Arguments),
    /// Capture the frames of a port to a pcapng file
    Capture(capture::Arguments),
    /// Check a configuration file, or the health of the running switch
    Check(check::Arguments),
    /// Say before a guest moves to another host what would hurt it there
    Migrate(migrate::Arguments),
    /// Prove by probes that every path carries the MTU
    Mtu(mtu::Arguments),
    /// Measure a feature on this host, on against off, and write a report
    Validate(validate::Arguments),
    /// Measure what each offload adds to the one before it
    Ladder(ladder::Arguments),
    /// Measure throughput by block size and connections, in both directions
    Sweep(sweep::Arguments),
    /// Measure one to ten thousand connections
    Connections(connections::Arguments),
    /// Compare two reports, or print their schema
    Report(report::Arguments),
    /// Measure TCP and UDP with NTttcp's own command lines
    Ntttcp(ntttcp::Arguments),
    /// Run a remote measurement agent, or simulate dynamic VMMQ
    Lab(lab::Arguments),
    /// A host of `validate`
    #[command(hide = true)]
    LabHost(lab_host::Arguments),
    /// Print the OpenAPI document of the daemon's API
    Openapi(openapi::Arguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Print the manual page, or write all of them to a directory
    Man(man::Arguments),
}
