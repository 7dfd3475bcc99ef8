//! The rules of a port: shown with counters, added and removed one by one.

use super::ports::Ports;
use super::report::Report;
use api::body::{AclAdd, AclBody, AclRuleBody};
use config::Config;
use problem::Problem;

/// Returns the rules of one port, with counters.
///
/// # Errors
/// There is no such port.
pub(crate) fn body(report: &Report<'_>, name: &str) -> Result<AclBody, Problem> {
    let (name, port) = report.ports.port(name)?;
    let hits = port.open().map_or_else(Vec::new, |open| report.switch.acl_hits(open.id));
    let hits = hits.into_iter().chain(std::iter::repeat(0));
    let rules =
        port.config.acl.iter().enumerate().zip(hits).map(|((place, rule), hits)| AclRuleBody {
            number: place + 1,
            rule: rule.clone(),
            hits,
        });
    Ok(AclBody { port: name.to_string(), rules: rules.collect() })
}

/// Adds a rule to those of a port.
///
/// # Errors
/// There is no such port, or no place with this number.
pub(crate) fn add(
    ports: &Ports,
    wanted: &mut Config,
    name: &str,
    add: AclAdd,
) -> Result<(), Problem> {
    let rules = wanted.port(name).map_or(0, |port| port.acl.len());
    let number = add.number.unwrap_or(rules + 1);
    if number == 0 || number > rules + 1 {
        return Err(Problem::new(format!("port {name} has {rules} rules"))
            .seen(number)
            .wanted(format!("a number from 1 to {}", rules + 1))
            .remedy("omit the number to add the rule at the end"));
    }
    ports.wanted(wanted, name)?.acl.insert(number - 1, add.rule);
    Ok(())
}

/// Removes the rule of a number, as typed.
///
/// # Errors
/// There is no such port or rule.
pub(crate) fn remove(
    ports: &Ports,
    wanted: &mut Config,
    name: &str,
    number: &str,
) -> Result<(), Problem> {
    let (_, port) = ports.port(name)?;
    let rules = port.config.acl.len();
    let place = number.parse().ok().filter(|number| (1..=rules).contains(number));
    let place = place.ok_or_else(|| {
        Problem::new(format!("port {name} has no rule {number}"))
            .seen(number)
            .wanted(match rules {
                0 => "nothing: the port has no rules".to_owned(),
                1 => "1: the port has one rule".to_owned(),
                rules => format!("a number from 1 to {rules}"),
            })
            .remedy(format!("`millrace acl show {name}` shows its rules"))
    })?;
    ports.wanted(wanted, name)?.acl.remove(place - 1);
    Ok(())
}
