//! Checks the rules between parts of a model. Crate `config` checks the rules of one host's
//! configuration.

use super::{Model, Port, VERSION};
use config::nearest;
use datapath::DropReason;
use problem::Problem;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Reports the first broken rule.
pub(super) fn check(model: &Model) -> Result<(), Problem> {
    if model.version != VERSION {
        return Err(Problem::new("the model has a different version")
            .seen(model.version)
            .wanted(VERSION)
            .remedy("use the Millrace version that wrote it"));
    }
    distinct("network", model.networks.iter().map(|it| (&it.name, &it.name)), "name")?;
    distinct("class", model.classes.iter().map(|it| (&it.name, &it.name)), "name")?;
    distinct("port", model.ports.iter().map(|it| (&it.name, &it.name)), "name")?;
    let macs: Vec<_> = model.ports.iter().map(|it| (&it.name, it.mac.0.to_string())).collect();
    distinct("port", macs.iter().map(|(name, mac)| (*name, mac)), "mac")?;
    for class in &model.classes {
        distinct("uplink", class.uplinks.iter().map(|it| (&it.name, &it.name)), "name")
            .map_err(|problem| problem.at(format!("class {}", class.name)))?;
    }
    model.ports.iter().try_for_each(|port| port_rules(model, port))?;
    model.policy().drops.keys().try_for_each(|reason| is_reason(reason))?;
    uplink_names(model)
}

/// Refuses a value that two things share.
fn distinct<'m, N: Display + 'm, V: Display + Ord + 'm>(
    what: &str,
    all: impl Iterator<Item = (&'m N, &'m V)>,
    key: &str,
) -> Result<(), Problem> {
    let mut seen = BTreeMap::new();
    for (name, value) in all {
        if let Some(other) = seen.insert(value, name) {
            return Err(Problem::new(format!("{what} {name}: its {key} is used twice"))
                .seen(format!("{value}, which {what} {other} has too"))
                .wanted(format!("a {key} of its own for each {what}"))
                .remedy("change one of the two"));
        }
    }
    Ok(())
}

/// Refuses a word that is no drop reason of a switch.
fn is_reason(word: &str) -> Result<(), Problem> {
    let known: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    if known.contains(&word) {
        return Ok(());
    }
    let remedy = match nearest(word, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "see docs/troubleshooting.md for what each means".to_owned(),
    };
    Err(Problem::new("[rollout] drops: not a reason for which frames are dropped")
        .seen(word)
        .wanted(known.join(", "))
        .remedy(remedy))
}

fn port_rules(model: &Model, port: &Port) -> Result<(), Problem> {
    let network = port.network.as_str();
    if model.network(network).is_none() {
        let known: Vec<&str> = model.networks.iter().map(|it| it.name.as_str()).collect();
        let remedy = match nearest(network, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add the network, or name another one".to_owned(),
        };
        let wanted = if known.is_empty() {
            "the name of a [[network]], of which there is none".into()
        } else {
            known.join(", ")
        };
        return Err(Problem::new(format!("port {}: its network does not exist", port.name))
            .seen(network)
            .wanted(wanted)
            .remedy(remedy));
    }
    let devices = [port.tap.is_some(), port.vhost_user.is_some()];
    if devices.iter().filter(|named| **named).count() == 1 {
        return Ok(());
    }
    Err(Problem::new(format!("port {}: it needs exactly one device", port.name))
        .seen(if devices[0] { "tap and vhost-user" } else { "neither tap nor vhost-user" })
        .wanted("one of the two")
        .remedy("write tap = \"NAME\" or vhost-user = \"/PATH\""))
}

/// A port and an uplink can be on one host, so they must not share a name.
fn uplink_names(model: &Model) -> Result<(), Problem> {
    for class in &model.classes {
        for uplink in &class.uplinks {
            if model.ports.iter().any(|port| port.name == uplink.name) {
                return Err(Problem::new(format!("port {}: an uplink has its name", uplink.name))
                    .seen(format!("uplink {} of class {}", uplink.name, class.name))
                    .wanted("a name that no uplink has")
                    .remedy("rename one of the two"));
            }
        }
    }
    Ok(())
}
