//! The rules of a port: shown with counters, added and removed one by one.

use super::Running;
use super::steps::all_done;
use api::body::{AclAdd, AclBody, AclRuleBody};
use config::{PortConfig, Rule};
use problem::Problem;
use std::time::Instant;

impl Running {
    /// The rules of one port, with counters.
    pub fn acl_body(&self, name: &str) -> Result<AclBody, Problem> {
        let (name, port) = self.port(name)?;
        let hits = port.open().map_or_else(Vec::new, |open| self.switch.acl_hits(open.id));
        let hits = hits.into_iter().chain(std::iter::repeat(0));
        let rules = port.config.acl.iter().enumerate().zip(hits).map(|((place, rule), hits)| {
            AclRuleBody { number: place + 1, rule: rule.clone(), hits }
        });
        Ok(AclBody { port: name.to_string(), rules: rules.collect() })
    }

    /// Adds a rule to those of a port.
    pub fn add_rule(&mut self, name: &str, add: AclAdd, now: Instant) -> Result<(), Problem> {
        let rules = self.config.port(name).map_or(0, |port| port.acl.len());
        let number = add.number.unwrap_or(rules + 1);
        if number == 0 || number > rules + 1 {
            return Err(Problem::new(format!("port {name} has {rules} rules"))
                .seen(number)
                .wanted(format!("a number from 1 to {}", rules + 1))
                .remedy("omit the number to add the rule at the end"));
        }
        self.change_acl(name, now, |acl| acl.insert(number - 1, add.rule))
    }

    /// Removes the rule of a number, as typed.
    pub fn remove_rule(&mut self, name: &str, number: &str, now: Instant) -> Result<(), Problem> {
        let (_, port) = self.port(name)?;
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
        self.change_acl(name, now, |acl| {
            acl.remove(place - 1);
        })
    }

    fn change_acl(
        &mut self,
        name: &str,
        now: Instant,
        change: impl FnOnce(&mut Vec<Rule>),
    ) -> Result<(), Problem> {
        let mut wanted = self.config.clone();
        let is_meant = |port: &&mut PortConfig| port.name.as_str() == name;
        let port = wanted.ports.iter_mut().find(is_meant);
        change(&mut port.ok_or_else(|| self.no_such_port(name))?.acl);
        self.reload(wanted, now).and_then(|steps| all_done(&steps))
    }
}
