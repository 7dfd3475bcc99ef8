//! `millrace mtu`: proves by probes between responders that every path carries the MTU.

use super::networks::{Named, networks};
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, Subcommand};
use path_mtu::check::{self, Network, check_networks};
use path_mtu::local::{LocalReport, check_host};
use path_mtu::report::{Networks, Report};
use path_mtu::{Options, Responder};
use problem::Problem;
use problem::token::{Token, Whereabouts};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check that every path carries the MTU
    Check(Check),
    /// Send and acknowledge probes for `millrace mtu check`
    Responder(Respond),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  a$ millrace mtu responder --listen 192.0.2.1:5910      # prints TOKEN@192.0.2.1:5910
  b$ millrace mtu responder --listen 192.0.2.2:5910
  $  millrace mtu check TOKEN@192.0.2.1:5910 TOKEN@192.0.2.2:5910
  $  millrace mtu check --list hosts.txt --sample 16     # a thousand hosts, 16 peers each
  $  millrace mtu check --network management=TOKEN@192.0.2.1:5910,TOKEN@192.0.2.2:5910 \\
       --network migration=TOKEN@198.51.100.1:5910,TOKEN@198.51.100.2:5910
  $  millrace mtu check          # this host: ports, devices, and probes between its TAPs

Each responder sends UDP packets with don't-fragment to each other one: at the MTU, which must
arrive, and at the MTU + 1, which the sender's device must refuse. A finding names the hop (vNIC,
switch port, uplink, or beyond), the values seen and wanted, and the remedy; docs/jumbo.md explains
each. Subnets in which a host has an address each are networks of their own, each with its own MTU,
and are not probed against each other; --network names them. Exits with 0 without findings and with 1 otherwise.")]
struct Check {
    /// Responders to check against each other [default: check the running daemon's ports].
    #[arg(value_name = "TOKEN@ADDRESS:PORT")]
    hosts: Vec<Whereabouts>,
    /// Responders in one network, whose name is in its findings. Repeat it for each network.
    #[arg(long = "network", value_name = "NAME=TOKEN@ADDRESS:PORT,…")]
    networks: Vec<Named>,
    /// A file with more responders, or networks, one per line.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// The MTU that every path must carry [default: that of most hosts' devices in its network].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..=65_533))]
    mtu: Option<u16>,
    /// Probe this many peers of each host instead of all; prints the chance of missing a fault.
    #[arg(long, value_name = "PEERS", value_parser = clap::value_parser!(u16).range(2..))]
    sample: Option<u16>,
    /// Seed of the sample.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "sample")]
    seed: u64,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace mtu responder --listen 192.0.2.1:5910

Listens on TCP and UDP until interrupted, and prints TOKEN@ADDRESS:PORT for `millrace mtu check`.
A client with the token can make it send probes to other responders, at most --probes per second.
It answers nothing else, and no answer is longer than its request. The token is sent unencrypted:
use a network you trust, or a tunnel.")]
struct Respond {
    /// Address to listen on, in the network to check; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The token that clients must send [default: random].
    #[arg(long, value_name = "TOKEN", env = "MILLRACE_MTU_TOKEN", hide_env_values = true)]
    token: Option<Token>,
    /// Send at most this many probes per second, and acknowledge at most as many.
    #[arg(long, value_name = "NUMBER", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    probes: u32,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.what {
        What::Check(arguments) => check_paths(arguments, global),
        What::Responder(arguments) => respond(arguments),
    }
}

fn check_paths(arguments: &Check, global: &Global) -> Outcome {
    let networks = arguments.networks()?;
    let options = check::Options {
        mtu: arguments.mtu,
        peers: arguments.sample.map(usize::from),
        seed: arguments.seed,
        ..check::Options::default()
    };
    let shown = AtomicUsize::new(0);
    let progress = |done, of| progress(&shown, done, of);
    let healthy = if networks.is_empty() {
        let report = check_host(global.client()?.mtu()?, arguments.mtu, &progress)?;
        output::show(global, &report, LocalReport::text)?;
        report.healthy
    } else {
        match check_networks(&networks, &options, &progress)?.into_only() {
            Ok(report) => {
                output::show(global, &report, Report::text)?;
                report.healthy
            }
            Err(networks) => {
                output::show(global, &networks, |it| Networks::text(it))?;
                networks.healthy
            }
        }
    };
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Check {
    fn networks(&self) -> Result<Vec<Network>, Failure> {
        let (mut hosts, mut named) = (self.hosts.clone(), self.networks.clone());
        if let Some(path) = &self.list {
            let read = |error| Problem::new(format!("reading {}", path.display())).seen(error);
            let text = std::fs::read_to_string(path).map_err(read)?;
            for (number, line) in text.lines().enumerate() {
                let line = line.split('#').next().unwrap_or_default().trim();
                if !line.is_empty() {
                    let place = format!("{}:{}", path.display(), number + 1);
                    let wrong = |why: String| Problem::new(why).seen(line).at(place);
                    match line.contains('=') {
                        true => named.push(line.parse().map_err(wrong)?),
                        false => hosts.push(line.parse().map_err(wrong)?),
                    }
                }
            }
        }
        Ok(networks(hosts, named))
    }
}

/// Shows progress: on a terminal one line that is redrawn, elsewhere a few lines.
fn progress(shown: &AtomicUsize, done: usize, of: usize) {
    let tenth = done * 10 / of.max(1);
    if shown.fetch_max(tenth, Ordering::Relaxed) >= tenth {
        return;
    }
    let mut out = std::io::stderr().lock();
    // Progress that cannot be shown is no reason to stop.
    let _ = if out.is_terminal() {
        write!(out, "\r{done} of {of} directions probed{}", if tenth == 10 { "\n" } else { "" })
    } else if tenth.is_multiple_of(5) {
        writeln!(out, "{done} of {of} directions probed")
    } else {
        Ok(())
    };
}

fn respond(arguments: &Respond) -> Outcome {
    let token = match &arguments.token {
        Some(token) => token.clone(),
        None => Token::random()
            .map_err(|error| Problem::new("drawing a token at random").seen(error))?,
    };
    let mut options = Options::new(arguments.listen, token.clone());
    options.datagrams_per_s = arguments.probes;
    let responder = Responder::start(options).map_err(|error| {
        Problem::new(format!("listening on {}", arguments.listen))
            .seen(error)
            .remedy("choose an address of this host and a port that is free for TCP and UDP")
    })?;
    output::print(&format!("{token}@{}", responder.address()))?;
    responder.wait();
    Ok(ExitCode::SUCCESS)
}
