//! `millrace mac`: learned addresses.

use crate::commands::names::{self, PortOrAll};
use crate::global::Global;
use crate::output::{self, Outcome, table};
use api::body::MacBody;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List learned addresses
    List(List),
    /// Forget the addresses learned on one port, or on all
    Flush(Flush),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace mac list
  millrace mac list uplink0 --vlan 10
  millrace mac list --json | jq -r '.[].mac'

A port's own address (`mac`, or the one that the port is held to) is not learned; `millrace port
show` shows it.")]
struct List {
    /// Only addresses behind this port.
    #[arg(add = names::ports())]
    port: Option<String>,
    /// Only addresses in this VLAN of the switch; 0 is untagged.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace mac flush uplink0
  millrace mac flush --all

An address is learned again from the next frame it sends; until then, frames to it are flooded.")]
struct Flush {
    #[command(flatten)]
    which: PortOrAll,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    match &arguments.verb {
        Verb::List(list) => {
            if let Some(port) = &list.port {
                client.port(port)?;
            }
            let is_meant = |entry: &MacBody| {
                list.port.as_ref().is_none_or(|port| *port == entry.port)
                    && list.vlan.is_none_or(|vlan| vlan == entry.vlan)
            };
            let mut macs: Vec<_> = client.macs()?.into_iter().filter(is_meant).collect();
            macs.sort_by(|a, b| (&a.port, a.vlan, &a.mac).cmp(&(&b.port, b.vlan, &b.mac)));
            output::show(global, &macs, |macs| text(macs))
        }
        Verb::Flush(flush) => {
            client.forget_macs(flush.which.port())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn text(macs: &[MacBody]) -> String {
    let row = |entry: &MacBody| {
        let (vlan, age) = (entry.vlan.to_string(), format!("{} s", entry.age_s));
        vec![entry.mac.clone(), vlan, entry.port.clone(), age]
    };
    table(&["ADDRESS", "VLAN", "PORT", "LAST SEEN"], macs.iter().map(row))
}
