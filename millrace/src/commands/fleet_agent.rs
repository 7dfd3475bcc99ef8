//! `millrace fleet agent`: applies the fleet's desired state on this host.

use super::fleet_etcd::At;
use super::fleet_options::{Labels, name};
use crate::global::Global;
use crate::output::{Failure, Outcome};
use clap::Args;
use daemon::log;
use fleet::Name;
use fleet::agent::{self, Lab, LocalSwitch, Options};
use problem::Problem;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet agent --host a --label role=compute --etcd http://127.0.0.1:2379
  millrace fleet agent --host a --etcd https://etcd1.example:2379 --credentials /etc/millrace/fleet --metrics 127.0.0.1:9479

The agent follows etcd and gives this host's part of the fleet to the daemon at --socket. If names or devices conflict, the daemon's
own file wins, then the fleet, then ports added through the API. While etcd does not answer, the switch stays as it is; the last
state is on disk. MILLRACE_LOG sets the log level.")]
pub(crate) struct Agent {
    /// The host's name in the fleet.
    #[arg(long, value_name = "NAME", value_parser = name)]
    host: Name,
    #[command(flatten)]
    labels: Labels,
    #[command(flatten)]
    at: At,
    /// The directory in which to keep the last state.
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "MILLRACE_FLEET_STATE_DIR",
        hide_env_values = true,
        default_value = "/var/lib/millrace-fleet"
    )]
    state_dir: PathBuf,
    /// Serve the agent's metrics and health at this address, to anyone who reaches it: /metrics,
    /// /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Address of this host on the paths that `millrace fleet mtu` is to prove; a responder listens
    /// there [default port: 5910].
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = responder)]
    mtu_address: Option<SocketAddr>,
    /// This host's own address behind its switch; it then takes part in `millrace fleet validate`,
    /// and sends from there [default port: 5900].
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = lab)]
    lab_address: Option<SocketAddr>,
}

/// The responder's default port.
const RESPONDER: u16 = 5910;
/// The default port of the sender in an experiment.
const LAB: u16 = 5900;

fn responder(text: &str) -> Result<SocketAddr, Problem> {
    address(text, RESPONDER)
}

fn lab(text: &str) -> Result<SocketAddr, Problem> {
    address(text, LAB)
}

/// Parses `ADDRESS[:PORT]` of a host.
fn address(text: &str, port: u16) -> Result<SocketAddr, Problem> {
    let address = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| (ip, port).into()));
    let address = address.ok().filter(|it: &SocketAddr| {
        !it.ip().is_unspecified() && !it.ip().is_multicast() && it.port() > 0
    });
    address.ok_or_else(|| {
        Problem::new("not an address of a host")
            .seen(text)
            .wanted("an IP address that other hosts reach, with or without a port")
            .remedy(format!("write it like 192.0.2.1, 192.0.2.1:{port} or [2001:db8::1]:{port}"))
    })
}

impl Agent {
    pub(super) fn run(&self, global: &Global) -> Outcome {
        let levels = std::env::var("MILLRACE_LOG").ok();
        log::start(levels.as_deref()).map_err(Failure::Failed)?;
        log::write_aside().map_err(Failure::Failed)?;
        let options = Options {
            host: self.labels.host(&self.host),
            etcd: self.at.access()?,
            state_directory: self.state_dir.clone(),
            metrics: self.metrics,
            mtu_address: self.mtu_address,
            lab: self.lab_address.map(|address| lab_at(address, global)).transpose()?,
        };
        let switch = LocalSwitch { socket: global.socket() };
        match agent::run(options, Box::new(switch))? {}
    }
}

/// Returns how this host takes part in experiments: by processes of this program.
fn lab_at(address: SocketAddr, global: &Global) -> Result<Lab, Problem> {
    let program = std::env::current_exe()
        .map_err(|error| Problem::new("this program's own file is not known").seen(error))?;
    Ok(Lab { address, program, socket: global.socket() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_responder_has_an_address_that_others_reach() {
        for (text, wanted) in [
            ("192.0.2.1", "192.0.2.1:5910"),
            ("192.0.2.1:7", "192.0.2.1:7"),
            ("2001:db8::1", "[2001:db8::1]:5910"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(responder(text).unwrap().to_string(), wanted);
        }
        for wrong in ["", "0.0.0.0", "[::]:7", "224.0.0.1", "192.0.2.1:0", "far.example:7"] {
            assert!(responder(wrong).is_err(), "{wrong}");
        }
    }
}
