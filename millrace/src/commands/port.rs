//! `millrace port`: shows and changes ports while the switch runs.

use crate::commands::anew::Tap;
use crate::commands::port_wait::Wait;
use crate::commands::{names, port_add, port_export, port_show, status};
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::client::Client;
use clap::{Args, Subcommand};
use config::typed_value;
use problem::Problem;
use serde_json::{Map, Value};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Add a port
    Add(Box<port_add::Add>),
    /// Remove a port
    Remove(Remove),
    /// Show one port and its counters
    Show(port_show::Show),
    /// Change keys of a port while it runs
    Set(Set),
    /// List all ports
    #[command(alias = "ls")]
    List(List),
    /// Print a port's settings, tables and counters for another host
    Export(port_export::Export),
    /// Add or change a port to match an export from another host
    Import(port_export::Import),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port remove vm1
  millrace port remove vm1 --if-exists")]
struct Remove {
    /// The port.
    #[arg(add = names::ports())]
    name: String,
    /// Do nothing if there is no such port.
    #[arg(long)]
    if_exists: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  millrace port list\n  millrace port list --json | jq -r '.[].name'"
)]
struct List {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port set vm1 mtu=9000 rate=1Gbit
  millrace port set vm1 rate=            # removes the key
  millrace port set vm1 trunk=10,20-30 vlan=
  millrace port set vm1 netns=guest --wait up

Keys are those of [[port]] in the configuration file. KEY= removes a key.")]
struct Set {
    /// The port.
    #[arg(add = names::ports())]
    name: String,
    /// Keys and their values.
    #[arg(required = true, value_name = "KEY=VALUE", add = names::keys())]
    changes: Vec<String>,
    /// Do nothing if there is no such port.
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(arguments: Arguments, global: &Global) -> Outcome {
    match arguments.verb {
        Verb::Add(add) => add.run(global),
        Verb::Remove(remove) => remove.run(global),
        Verb::Show(show) => show.run(global),
        Verb::Export(export) => export.run(global),
        Verb::Import(import) => import.run(global),
        Verb::Set(set) => set.run(global),
        Verb::List(_) => {
            output::show(global, &global.client()?.ports()?, |ports| status::ports(ports))
        }
    }
}

impl Remove {
    fn run(&self, global: &Global) -> Outcome {
        let client = global.client()?;
        if !self.if_exists || exists(&client, &self.name)? {
            client.remove_port(&self.name)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Set {
    fn run(&self, global: &Global) -> Outcome {
        let change = Value::Object(changes(&self.changes)?);
        let client = global.client()?;
        if self.if_exists && !exists(&client, &self.name)? {
            return Ok(ExitCode::SUCCESS);
        }
        // Before the change: afterwards the device has no addresses any more.
        let before = Tap::of(&client.port(&self.name)?);
        let port = client.change_port(&self.name, &change)?;
        let port = self.wait.until(&client, port)?;
        if let Some(lost) = before.and_then(|tap| tap.lost_by(&port)) {
            output::tell(&lost);
        }
        output::show(global, &port, |port| status::ports(std::slice::from_ref(port)))
    }
}

fn exists(client: &Client, name: &str) -> Result<bool, Failure> {
    Ok(client.ports()?.iter().any(|port| port.name == name))
}

/// Returns pairs `KEY=VALUE` as a merge patch.
///
/// # Errors
/// A pair lacks `=`.
pub(super) fn changes(texts: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut map = Map::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Failure::Usage(
                Problem::new("not a key with a value")
                    .seen(text)
                    .wanted("KEY=VALUE")
                    .remedy("write, for example, mtu=9000"),
            ));
        };
        map.insert(key.to_owned(), typed_value(key, value));
    }
    Ok(map)
}
