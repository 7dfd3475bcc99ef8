//! A port's rule in the form of the data path.

use config::{Rule, RuleAction, RuleEnd, RuleProtocol};
use datapath::{AclAction, AclEnd, AclMark, AclProtocol, AclRule};
use ports::capture::Direction;

/// Returns the rule as the data path tests it.
pub(super) fn compiled(rule: &Rule) -> AclRule {
    AclRule {
        action: match rule.action() {
            RuleAction::Allow => AclAction::Allow,
            RuleAction::Deny => AclAction::Deny,
            RuleAction::Mark(mark) => AclAction::Mark(AclMark { dscp: mark.dscp, pcp: mark.pcp }),
        },
        direction: if rule.is_out() { Direction::Egress } else { Direction::Ingress },
        protocol: match rule.protocol() {
            RuleProtocol::Any => AclProtocol::Any,
            RuleProtocol::Arp => AclProtocol::Arp,
            RuleProtocol::Ipv4 => AclProtocol::Ipv4,
            RuleProtocol::Ipv6 => AclProtocol::Ipv6,
            RuleProtocol::Ip(number) => AclProtocol::Ip(number),
        },
        from: end(rule.from()),
        to: end(rule.to()),
    }
}

fn end(end: &RuleEnd) -> AclEnd {
    let prefix = end.prefix.map(|prefix| prefix.prefix());
    AclEnd { mac: end.mac, prefix, ports: end.ports.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_it_so() {
        let rule: Rule = "deny  in tcp to port 22 10.0.0.0/8".parse().unwrap();
        let compiled = compiled(&rule);
        assert_eq!(compiled.protocol, AclProtocol::Ip(6));
        assert_eq!(compiled.to.ports, Some(22..=22));
    }
}
