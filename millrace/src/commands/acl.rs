//! `millrace acl`: the rules of a port, shown with counters and changed live.

use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Failure, Outcome, table};
use api::body::{AclAdd, AclBody};
use clap::{Args, Subcommand};
use config::Rule;
use problem::Problem;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the rules of a port and how many frames each matched
    Show(Show),
    /// Add a rule
    Add(Add),
    /// Remove a rule; later rules move up
    Remove(Remove),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  millrace acl show vm1\n  millrace acl show vm1 --json | jq '.rules[].hits'"
)]
struct Show {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace acl add vm1 deny in tcp to 10.0.0.0/8 port 22-23
  millrace acl add vm1 allow in tcp to 10.0.0.7 port 22 --number 1
  millrace acl add vm1 deny out from 52:54:00:00:00:09
  millrace acl add vm1 deny in
  millrace acl add vm1 mark dscp 46 pcp 5 in udp to port 5060

A rule: allow|deny in|out [PROTOCOL] [from MATCH] [to MATCH]
or: mark [dscp N] [pcp N] in [PROTOCOL] [from MATCH] [to MATCH]
  in         from the port into the switch; out: toward the port
  PROTOCOL   arp, ip4, ip6, tcp, udp, icmp, icmp6 or a number
  MATCH      one or more of: a MAC address, an IP prefix, port N or N-M

The first match wins; a frame that no rule matches passes. If a fragment or an unreadable frame
lacks a field that a rule tests, deny matches and allow does not.
mark sets the DSCP of an IP packet and the priority of its VLAN tag. The first matching mark rule
applies; the allow and deny rules decide whether the frame passes.
On a port added through the API the change persists; on a port from the file it lasts until the
daemon stops or rereads its file.")]
struct Add {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
    /// The rule, in the grammar below.
    #[arg(required = true, add = names::rule_words())]
    rule: Vec<String>,
    /// Insert the rule at this number; later rules move down.
    #[arg(long, value_name = "N")]
    number: Option<usize>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace acl remove vm1 2
  millrace acl remove vm1 2 deny in udp to port 53

With the rule itself behind its number, nothing is removed if another rule has that number by now,
because somebody has changed the rules since you read them.")]
struct Remove {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
    /// The rule's number, as shown by `millrace acl show`.
    number: usize,
    /// The rule that you expect there.
    #[arg(add = names::rule_words())]
    rule: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let body = match &arguments.verb {
        Verb::Show(show) => global.client()?.acl(&show.port)?,
        Verb::Add(add) => {
            let rule = add.rule.join(" ").parse().map_err(Failure::Usage)?;
            global.client()?.add_rule(&add.port, &AclAdd { rule, number: add.number })?
        }
        Verb::Remove(remove) => removed(remove, global)?,
    };
    output::show(global, &body, text)
}

/// Removes a rule from the list that it reads, and not from one that somebody makes of it meanwhile.
fn removed(Remove { port, number, rule }: &Remove, global: &Global) -> Result<AclBody, Failure> {
    let client = global.client()?;
    let (body, tag) = client.tagged_acl(port)?;
    if !rule.is_empty() {
        expect(&body, *number, &rule.join(" ").parse().map_err(Failure::Usage)?)?;
    }
    Ok(client.remove_tagged_rule(port, *number, &tag)?)
}

/// Checks that a number is that of the expected rule. One that no rule has is the daemon's to refuse.
fn expect(AclBody { port, rules }: &AclBody, number: usize, wanted: &Rule) -> Result<(), Problem> {
    let found = rules.iter().find(|rule| rule.number == number);
    let Some(found) = found.filter(|found| found.rule != *wanted) else { return Ok(()) };
    let now = rules.iter().find(|rule| rule.rule == *wanted).map_or_else(
        || format!("`millrace acl show {port}`: no rule of the port is that one"),
        |rule| format!("`millrace acl remove {port} {} {wanted}`", rule.number),
    );
    Err(Problem::new(format!("rule {number} of port {port} is another one; nothing was removed"))
        .seen(&found.rule)
        .wanted(wanted)
        .remedy(now))
}

fn text(body: &AclBody) -> String {
    if body.rules.is_empty() {
        return format!("port {} has no rules: all frames pass", body.port);
    }
    let row = |rule: &api::body::AclRuleBody| {
        vec![rule.number.to_string(), rule.hits.to_string(), rule.rule.to_string()]
    };
    table(&["NUMBER", "HITS", "RULE"], body.rules.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::AclRuleBody;

    #[test]
    fn a_rule_that_has_moved_is_not_removed_by_its_old_number() {
        let rule =
            |number, text: &str| AclRuleBody { number, rule: text.parse().unwrap(), hits: 7 };
        let rules = vec![rule(1, "deny in arp"), rule(2, "deny in udp to port 53")];
        let body = AclBody { port: "vm1".to_owned(), rules };
        let expect = |number, text: &str| expect(&body, number, &text.parse().unwrap());
        assert!(expect(2, "deny in udp to port 53").is_ok());
        assert!(expect(3, "deny in arp").is_ok(), "the daemon says that there is none");
        let moved = expect(2, "deny in arp").unwrap_err();
        assert!(moved.seen.contains("port 53"), "{moved}");
        assert!(moved.remedy.contains("acl remove vm1 1 deny in arp"), "{moved}");
        let gone = expect(1, "allow in tcp").unwrap_err();
        assert!(gone.remedy.contains("acl show vm1"), "{gone}");
    }
}
