//! `millrace migrate`: checks before a migration what would break a guest at its destination.

use super::networks::{Named, networks};
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::client::Client;
use clap::{ArgGroup, Args, Subcommand};
use daemon::migration::{Finding, HostExport, findings, members};
use path_mtu::check;
use problem::Problem;
use problem::token::Whereabouts;
use serde::Serialize;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check what would break guests at another host
    Check(Check),
    /// Print what `check` needs to know about this host
    Export(Export),
}

#[derive(Args)]
#[command(group = ArgGroup::new("probed").args(["responders", "networks"]).multiple(true))]
#[command(after_help = "\
Examples:
  a$ millrace migrate export > a.json
  b$ millrace migrate export | ssh a 'cat > b.json'
  a$ millrace migrate check a.json b.json                 # all guests of a
  a$ millrace migrate check /run/millrace/api.sock b.json vm1
  a$ millrace migrate check a.json b.json \\
       --network management=TOKEN@192.0.2.1:5910,TOKEN@192.0.2.2:5910 \\
       --network migration=TOKEN@198.51.100.1:5910,TOKEN@198.51.100.2:5910

With responders (`millrace mtu responder`) at the hosts' addresses, probes prove that each network
carries its MTU. Name all networks, not only the one that carries the migration: migrations also
crawl or fail if the management network has mixed MTUs. docs/migration.md explains each finding.
Exits with 0 without findings and with 1 otherwise.")]
struct Check {
    /// The host that guests leave: a file from `millrace migrate export`, or a daemon's socket.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The host that guests go to.
    #[arg(value_name = "DESTINATION")]
    destination: PathBuf,
    /// Ports of the source [default: its vhost-user ports with a guest].
    #[arg(value_name = "PORT")]
    ports: Vec<String>,
    /// A responder on each host, in the network that carries the migration.
    #[arg(long = "responder", value_name = "TOKEN@ADDRESS:PORT")]
    responders: Vec<Whereabouts>,
    /// A responder on each host, in a network of this name. Repeat it for each network.
    #[arg(long = "network", value_name = "NAME=TOKEN@ADDRESS:PORT,…")]
    networks: Vec<Named>,
    /// The MTU that each network must carry [default: that of most hosts' devices in it].
    #[arg(long, value_name = "BYTES", requires = "probed", value_parser = clap::value_parser!(u16).range(68..=65_533))]
    mtu: Option<u16>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace migrate export > a.json

Prints JSON: ports with their settings and guests, MTUs, teams and learned addresses.")]
struct Export {}

/// The result of a check.
#[derive(Serialize)]
struct Report {
    healthy: bool,
    ports: Vec<String>,
    findings: Vec<Finding>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.what {
        What::Check(check) => check.run(global),
        What::Export(_) => print_json(&HostExport::of(&global.client()?)?),
    }
}

impl Check {
    fn run(&self, global: &Global) -> Outcome {
        let (from, to) = (host(&self.source)?, host(&self.destination)?);
        let ports = match self.ports.as_slice() {
            [] => guests(&from)?,
            named => named.to_vec(),
        };
        let mut found = Vec::new();
        for port in &ports {
            found.extend(findings(&from, &to, port).map_err(Failure::Usage)?);
        }
        found.extend(self.paths(&from, &to)?);
        let report = Report { healthy: found.is_empty(), ports, findings: found };
        output::show(global, &report, Report::text)?;
        Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the findings of probes in the hosts' networks, and of the devices that these cannot
    /// reach: members of teams.
    fn paths(&self, from: &HostExport, to: &HostExport) -> Result<Vec<Finding>, Failure> {
        let networks = networks(self.responders.clone(), self.networks.clone());
        if networks.is_empty() {
            return Ok(Vec::new());
        }
        let options = check::Options { mtu: self.mtu, ..check::Options::default() };
        let checked = check::check_networks(&networks, &options, &|_, _| ())?;
        let finding = |network, problem| Finding {
            port: String::new(),
            network,
            about: "path".to_owned(),
            problem,
        };
        let mut found = Vec::new();
        for report in checked.networks {
            let problems = report.findings.into_iter().map(|it| it.problem).chain(report.unchecked);
            found.extend(problems.map(|problem| finding(report.network.clone(), problem)));
        }
        found.extend(checked.unchecked.into_iter().map(|problem| finding(None, problem)));
        found.extend(members(from, "the source"));
        found.extend(members(to, "the destination"));
        Ok(found)
    }
}

impl Report {
    fn text(&self) -> String {
        if self.healthy {
            return format!("nothing found for {}", self.ports.join(", "));
        }
        let line = |it: &Finding| {
            let port = if it.port.is_empty() { "" } else { &format!("{}, ", it.port) };
            let network = it.network.as_ref().map_or(String::new(), |name| format!(" in {name}"));
            format!("{port}{}{network}: {}", it.about, it.problem)
        };
        self.findings.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the ports with a running guest.
fn guests(host: &HostExport) -> Result<Vec<String>, Failure> {
    let runs = host.ports.iter().filter(|port| port.guest.as_ref().is_some_and(|it| it.queues > 0));
    let names: Vec<String> = runs.map(|port| port.name.clone()).collect();
    if names.is_empty() {
        return Err(Failure::Usage(
            Problem::new("no guest runs at the source")
                .seen(format!("{} ports", host.ports.len()))
                .wanted("a vhost-user port with a running guest")
                .remedy("name the ports to check"),
        ));
    }
    Ok(names)
}

/// Returns a host's export: from a file, or from the daemon at a socket.
fn host(path: &Path) -> Result<HostExport, Failure> {
    if std::fs::metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        return Ok(HostExport::of(&Client::connect(path)?)?);
    }
    let at = |problem: Problem| Failure::Usage(problem.at(path.display()));
    HostExport::read(&read(Some(path))?).map_err(at)
}

/// Reads a file's text; that of standard input for `None`.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(path: Option<&Path>) -> Result<String, Failure> {
    let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
    let read = match path {
        Some(path) => std::fs::read_to_string(path),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
    };
    read.map_err(|error| {
        Failure::Usage(
            Problem::new(format!("{name} cannot be read"))
                .seen(error)
                .wanted("JSON printed by `export`")
                .remedy("name an existing file that you may read"),
        )
    })
}

pub(crate) fn print_json(body: &impl Serialize) -> Outcome {
    let json = serde_json::to_string_pretty(body)
        .map_err(|error| Problem::new("writing JSON").seen(error))?;
    output::print(&json)?;
    Ok(ExitCode::SUCCESS)
}
