//! `acl`: a port's rules, each a line such as `deny in tcp to 10.0.0.0/8 port 22-23` or
//! `mark dscp 46 in udp to port 5060`.
//!
//! ```text
//! allow|deny  in|out  [arp|ip4|ip6|tcp|udp|icmp|icmp6|NUMBER]  [from MATCH]  [to MATCH]
//! mark [dscp N] [pcp N]  in  ...
//! MATCH:  [MAC]  [ADDRESS or PREFIX]  [port N or N-M]
//! ```

use super::guard::IpPrefix;
use super::scalar::{FromScalar, Scalar, through_scalar};
use problem::Problem;
use std::fmt;
use std::iter::Peekable;
use std::ops::RangeInclusive;
use wire::Mac;

/// A rule as written. Two texts with the same meaning are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    action: RuleAction,
    out: bool,
    protocol: RuleProtocol,
    from: RuleEnd,
    to: RuleEnd,
}

/// What a rule does with a frame that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The frame passes.
    Allow,
    /// The frame is dropped.
    Deny,
    /// The frame is marked; other rules decide whether it passes.
    Mark(RuleMark),
}

/// The mark that a rule writes; a field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RuleMark {
    /// Differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// Priority of the VLAN tag, 0 to 7.
    pub pcp: Option<u8>,
}

/// The kind of frame that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleProtocol {
    /// Any kind.
    Any,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6 with this transport.
    Ip(u8),
}

/// What a rule matches in a source or a destination.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RuleEnd {
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The IP addresses.
    pub prefix: Option<IpPrefix>,
    /// The ports of TCP or UDP.
    pub ports: Option<RangeInclusive<u16>>,
}

through_scalar!(Rule);

/// Words for protocols, and what they mean.
const PROTOCOLS: [(&str, RuleProtocol); 7] = [
    ("arp", RuleProtocol::Arp),
    ("ip4", RuleProtocol::Ipv4),
    ("ip6", RuleProtocol::Ipv6),
    ("tcp", RuleProtocol::Ip(6)),
    ("udp", RuleProtocol::Ip(17)),
    ("icmp", RuleProtocol::Ip(1)),
    ("icmp6", RuleProtocol::Ip(58)),
];

/// The error in a rule: the word at fault, and what was wanted there.
type Fault = (String, &'static str);

impl Rule {
    /// Most rules a port may have in one direction.
    pub const MAX: usize = 256;

    /// Returns what the rule does with a frame that it matches.
    pub fn action(&self) -> RuleAction {
        self.action
    }

    /// Returns whether the rule applies to frames toward the port.
    pub fn is_out(&self) -> bool {
        self.out
    }

    /// Returns the kind of frame that the rule matches.
    pub fn protocol(&self) -> RuleProtocol {
        self.protocol
    }

    /// Returns what the rule matches in a frame's source.
    pub fn from(&self) -> &RuleEnd {
        &self.from
    }

    /// Returns what the rule matches in a frame's destination.
    pub fn to(&self) -> &RuleEnd {
        &self.to
    }

    /// Returns whether the rule decides which frames pass, toward the port (`out`) or from it.
    pub fn decides(&self, out: bool) -> bool {
        self.out == out && !self.marks()
    }

    /// Returns whether the rule marks frames.
    pub fn marks(&self) -> bool {
        matches!(self.action, RuleAction::Mark(_))
    }

    fn parse(text: &str) -> Result<Rule, Fault> {
        let mut words = text.split_whitespace().peekable();
        let action = action(&mut words)?;
        let out = match (words.next().unwrap_or_default(), action) {
            ("in", _) => false,
            ("out", RuleAction::Allow | RuleAction::Deny) => true,
            (word, RuleAction::Mark(_)) => {
                let wanted = "dscp N (0 to 63) or pcp N (0 to 7), each once, then in: only frames from the port are marked";
                return Err((word.to_owned(), wanted));
            }
            (word, _) => return Err((word.to_owned(), "in (from the port) or out (to the port)")),
        };
        let named = words.peek().and_then(|word| protocol(word));
        if named.is_some() {
            words.next();
        }
        let protocol = named.unwrap_or(RuleProtocol::Any);
        let mut rule =
            Rule { action, out, protocol, from: RuleEnd::default(), to: RuleEnd::default() };
        while let Some(word) = words.next() {
            let end = match word {
                "from" if rule.from == RuleEnd::default() => &mut rule.from,
                "to" if rule.to == RuleEnd::default() => &mut rule.to,
                _ => return Err((word.to_owned(), "a protocol, from, or to, each once")),
            };
            while let Some(word) = words.next_if(|word| !matches!(*word, "from" | "to")) {
                let value = if word == "port" { words.next() } else { None };
                end.take(word, value).ok_or_else(|| {
                    let seen = value.map_or(word.to_owned(), |value| format!("{word} {value}"));
                    (seen, "a MAC address, an IP prefix, or port N or N-M, each once")
                })?;
            }
            if *end == RuleEnd::default() {
                return Err((word.to_owned(), "an address or a port behind it"));
            }
        }
        rule.can_match().map(|()| rule)
    }

    /// Refuses words that contradict each other.
    fn can_match(&self) -> Result<(), Fault> {
        let ends = [&self.from, &self.to];
        let prefixes = || ends.iter().filter_map(|end| end.prefix);
        let ported = ends.iter().any(|end| end.ports.is_some());
        let v4 = |wanted: bool| prefixes().all(|prefix| prefix.is_ipv4() == wanted);
        let agrees = match self.protocol {
            RuleProtocol::Any => v4(true) || v4(false),
            RuleProtocol::Arp => prefixes().next().is_none() && !ported,
            RuleProtocol::Ipv4 => v4(true),
            RuleProtocol::Ipv6 => v4(false),
            RuleProtocol::Ip(number) => {
                (v4(true) || v4(false)) && (!ported || matches!(number, 6 | 17))
            }
        };
        if !agrees {
            let wanted = "prefixes of one address family, and ports only with tcp or udp";
            return Err((self.to_string(), wanted));
        }
        match self.protocol {
            // The switch skips extension headers to find the transport, so such a rule would never
            // match.
            RuleProtocol::Ip(number @ (0 | 43 | 44 | 51 | 60))
                if !prefixes().any(|p| p.is_ipv4()) =>
            {
                let wanted = "an IPv4 prefix (0.0.0.0/0 is all of IPv4): in IPv6, 0, 43, 44, 51 and 60 are \
                              extension headers, and a rule matches the transport behind them";
                Err((number.to_string(), wanted))
            }
            _ => Ok(()),
        }
    }
}

/// Parses the words before the direction.
fn action<'w>(words: &mut Peekable<impl Iterator<Item = &'w str>>) -> Result<RuleAction, Fault> {
    match words.next().unwrap_or_default() {
        "deny" => return Ok(RuleAction::Deny),
        "allow" => return Ok(RuleAction::Allow),
        "mark" => {}
        word => return Err((word.to_owned(), "allow or deny, or mark")),
    }
    let mut mark = RuleMark::default();
    while let Some(word) = words.next_if(|word| matches!(*word, "dscp" | "pcp")) {
        let (place, most) = if word == "dscp" { (&mut mark.dscp, 63) } else { (&mut mark.pcp, 7) };
        let value = words.next().unwrap_or_default();
        let number = value.parse().ok().filter(|number: &u8| *number <= most);
        number.and_then(|number| set(place, number)).ok_or_else(|| {
            (format!("{word} {value}"), "dscp N (0 to 63) or pcp N (0 to 7), each once")
        })?;
    }
    if mark == RuleMark::default() {
        let word = words.next().unwrap_or_default();
        return Err((word.to_owned(), "dscp N (0 to 63), or pcp N (0 to 7), or both"));
    }
    Ok(RuleAction::Mark(mark))
}

fn protocol(word: &str) -> Option<RuleProtocol> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, protocol)| *protocol);
    named.or_else(|| word.parse().ok().map(RuleProtocol::Ip))
}

impl RuleEnd {
    /// Takes one word, with its value if it is `port`. Returns `None` if the word does not fit or is
    /// a repetition.
    fn take(&mut self, word: &str, value: Option<&str>) -> Option<()> {
        if word == "port" {
            return set(&mut self.ports, range(value?)?);
        }
        match (word.parse::<Mac>(), IpPrefix::parse(word)) {
            (Ok(mac), _) => set(&mut self.mac, mac),
            (_, Some(prefix)) => set(&mut self.prefix, prefix),
            _ => None,
        }
    }
}

/// Sets an empty place. Returns `None` if it is already set.
fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.is_none().then(|| *place = Some(value))
}

/// Parses `22` or `22-23`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            RuleAction::Allow => out.write_str("allow")?,
            RuleAction::Deny => out.write_str("deny")?,
            RuleAction::Mark(RuleMark { dscp, pcp }) => {
                out.write_str("mark")?;
                for (word, value) in [("dscp", dscp), ("pcp", pcp)] {
                    value.map_or(Ok(()), |value| write!(out, " {word} {value}"))?;
                }
            }
        }
        out.write_str(if self.out { " out" } else { " in" })?;
        let word = PROTOCOLS.iter().find(|(_, protocol)| *protocol == self.protocol);
        match (word, self.protocol) {
            (Some((word, _)), _) => write!(out, " {word}")?,
            (None, RuleProtocol::Ip(number)) => write!(out, " {number}")?,
            (None, _) => {}
        }
        for (word, end) in [("from", &self.from), ("to", &self.to)] {
            if *end != RuleEnd::default() {
                write!(out, " {word}{end}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for RuleEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mac) = self.mac {
            write!(out, " {mac}")?;
        }
        if let Some(prefix) = self.prefix {
            write!(out, " {prefix}")?;
        }
        match &self.ports {
            Some(ports) if ports.start() == ports.end() => write!(out, " port {}", ports.start()),
            Some(ports) => write!(out, " port {}-{}", ports.start(), ports.end()),
            None => Ok(()),
        }
    }
}

impl FromScalar for Rule {
    fn read(scalar: &Scalar) -> Result<Rule, Problem> {
        let Scalar::Text(text) = scalar else {
            return Err(scalar
                .problem("not a rule", "a text such as \"deny in tcp to 10.0.0.0/8 port 22-23\""));
        };
        Rule::parse(text).map_err(|(word, wanted)| {
            let seen = if word.is_empty() {
                "the end of the rule".to_owned()
            } else {
                format!("{word:?}")
            };
            Problem::new(format!("not a rule: {text:?}"))
                .seen(seen)
                .wanted(wanted)
                .remedy("write it as in \"deny in tcp from 10.0.0.5 to 10.0.0.0/8 port 22-23\"")
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_words_panic_and_what_is_read_reads_back(
            words in proptest::collection::vec(proptest::sample::select(vec![
                "allow", "deny", "in", "out", "tcp", "udp", "arp", "ip4", "ip6", "47", "from", "to", "port",
                "mark", "dscp", "pcp", "22", "22-23", "23-22", "10.0.0.0/8", "10.0.0.1/8", "fd00::/64", "52:54:00:00:00:01", "x",
            ]), 0..10),
        ) {
            if let Ok(rule) = words.join(" ").parse::<Rule>() {
                prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Rule>();
        }
    }

    #[test]
    fn people_write_it_so() {
        for text in [
            "deny in",
            "allow in arp",
            "deny in tcp to 10.0.0.0/8 port 22-23",
            "allow out udp from fd00::5 port 53 to 52:54:00:00:00:01",
            "deny out from 52:54:00:00:00:01 10.0.0.5 port 80",
            "deny in 47",
            "deny in 51 from 0.0.0.0/0",
            "mark dscp 46 in udp to port 5060",
            "mark pcp 5 in",
            "mark dscp 0 pcp 7 in ip6",
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        let rule: Rule = "deny  in tcp to port 22 10.0.0.0/8".parse().unwrap();
        assert_eq!(rule.to_string(), "deny in tcp to 10.0.0.0/8 port 22");
    }

    #[test]
    fn what_is_no_rule_is_refused_with_the_word_and_what_was_wanted() {
        for (text, seen) in [
            ("", "the end of the rule"),
            ("drop in", "\"drop\""),
            ("deny tcp", "\"tcp\""),
            ("deny in tcp udp", "\"udp\""),
            ("deny in to", "\"to\""),
            ("deny in to 10.0.0.1/8", "\"10.0.0.1/8\""),
            ("deny in to port 23-22", "\"port 23-22\""),
            ("deny in to port", "\"port\""),
            ("deny in to port 1 port 2", "\"port 2\""),
            ("deny in from 10.0.0.1 from 10.0.0.2", "\"from\""),
            ("deny in from 10.0.0.1 to fd00::1", "\"deny in from 10.0.0.1 to fd00::1\""),
            ("deny in icmp to port 1", "\"deny in icmp to port 1\""),
            ("deny in 256", "\"256\""),
            ("deny in 51", "\"51\""),
            ("allow out 0 to fd00::1", "\"0\""),
            ("mark in", "\"in\""),
            ("mark dscp 64 in", "\"dscp 64\""),
            ("mark pcp 1 pcp 2 in", "\"pcp 2\""),
            ("mark pcp", "\"pcp \""),
            ("mark pcp 5 out", "\"out\""),
        ] {
            let problem = text.parse::<Rule>().unwrap_err();
            assert_eq!(problem.seen, seen, "{text}");
            assert!(!problem.wanted.is_empty() && !problem.remedy.is_empty(), "{text}");
        }
    }
}
