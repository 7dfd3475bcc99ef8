//! `millrace mac`: addresses, learned and the ports' own.

use crate::commands::names::{self, PortOrAll};
use crate::global::Global;
use crate::output::{self, Outcome, table};
use api::body::{MacBody, PortBody};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List addresses: learned ones, and the ports' own
    #[command(alias = "ls", alias = "show")]
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

LAST SEEN is `own` for the address that a port's `mac` names, `held` for the one to which the
MAC-spoofing guard holds a port, and `device` for that of a port's device; these are not learned and
do not age. VLAN is that of the switch, or the port's mode.")]
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
            let is_meant_port = |port: &PortBody| {
                list.port.as_ref().is_none_or(|name| *name == port.name)
                    && list.vlan.is_none_or(|vlan| port.config.carries_vlan(vlan))
            };
            let learned = client.macs()?.into_iter().filter(is_meant).map(Entry::learned);
            let ports = client.ports()?;
            let own = ports.iter().filter(|port| is_meant_port(port)).filter_map(Entry::own);
            let mut all: Vec<_> = learned.chain(own).collect();
            all.sort_by(|a, b| (&a.port, a.vlan, &a.mac).cmp(&(&b.port, b.vlan, &b.mac)));
            output::show(global, &all, |all| text(all))
        }
        Verb::Flush(flush) => {
            client.forget_macs(flush.which.port())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// An address, and where it is.
#[derive(Serialize)]
struct Entry {
    mac: String,
    /// VLAN in the switch; absent for an own address, which is one in all VLANs of its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    port: String,
    /// Absent if the address was not learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_s: Option<u64>,
    /// `learned`, `own`, `held` or `device`.
    origin: &'static str,
    /// The port's VLAN mode.
    #[serde(skip)]
    mode: String,
}

impl Entry {
    fn learned(body: MacBody) -> Entry {
        let MacBody { mac, vlan, port, age_s } = body;
        let (vlan, age_s) = (Some(vlan), Some(age_s));
        Entry { mac, vlan, port, age_s, origin: "learned", mode: String::new() }
    }

    /// Returns the address of a port that has one.
    fn own(port: &PortBody) -> Option<Entry> {
        let (mac, origin) = match (port.config.mac, &port.held_mac, &port.mac) {
            (Some(own), ..) => (own.0.to_string(), "own"),
            (None, Some(held), _) => (held.clone(), "held"),
            (None, None, Some(device)) => (device.clone(), "device"),
            (None, None, None) => return None,
        };
        let (port, mode) = (port.name.clone(), port.vlan.clone());
        Some(Entry { mac, vlan: None, port, age_s: None, origin, mode })
    }
}

fn text(entries: &[Entry]) -> String {
    let row = |entry: &Entry| {
        let vlan = match entry.vlan {
            None => entry.mode.clone(),
            Some(0) => "untagged".to_owned(),
            Some(vlan) => vlan.to_string(),
        };
        let age = entry.age_s.map_or_else(|| entry.origin.to_owned(), |age| format!("{age} s"));
        vec![entry.mac.clone(), vlan, entry.port.clone(), age]
    };
    table(&["ADDRESS", "VLAN", "PORT", "LAST SEEN"], entries.iter().map(row))
}
