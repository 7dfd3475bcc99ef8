//! Comparison of two Millrace ends' options before a test, so that a mistyped option is an error
//! and not a wrong figure.

use crate::plan::{Plan, Transport};
use serde::{Deserialize, Serialize};

/// The options that both ends must share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// TCP or UDP.
    pub transport: Transport,
    /// Ports used at the receiver.
    pub ports: u32,
    /// Whether every byte is checked.
    pub verify: bool,
    /// Whether round trips are made instead of bulk data.
    pub latency: bool,
}

impl Offer {
    /// Returns the offer of `plan` for a receiver with `ports` ports.
    pub fn of(plan: &Plan, ports: u32) -> Offer {
        Offer { transport: plan.transport, ports, verify: plan.verify, latency: plan.latency }
    }

    /// Returns why a receiver with the options `self` cannot run the sender's test; `None` if it
    /// can.
    pub fn objection(&self, sender: &Offer) -> Option<String> {
        let switch = |name: &str, here: bool, there: bool| {
            (here != there).then(|| {
                let (with, without) =
                    if here { ("receiver", "sender") } else { ("sender", "receiver") };
                format!(
                    "the {with} has {name} but the {without} does not: give it to both or to neither"
                )
            })
        };
        let udp = |offer: &Offer| offer.transport == Transport::Udp;
        switch("-u (UDP)", udp(self), udp(sender))
            .or_else(|| switch("--verify", self.verify, sender.verify))
            .or_else(|| switch("--latency", self.latency, sender.latency))
            .or_else(|| {
                (sender.ports > self.ports).then(|| {
                    format!(
                        "the sender uses {} ports and the receiver listens on {}: give both the same -m or -P",
                        sender.ports, self.ports
                    )
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_named_with_its_remedy() {
        let here = Offer { transport: Transport::Tcp, ports: 2, verify: false, latency: false };
        assert_eq!(here.objection(&here), None);
        assert_eq!(here.objection(&Offer { ports: 1, ..here.clone() }), None);
        let cases = [
            (Offer { transport: Transport::Udp, ..here.clone() }, "sender has -u"),
            (Offer { verify: true, ..here.clone() }, "sender has --verify"),
            (Offer { latency: true, ..here.clone() }, "sender has --latency"),
            (Offer { ports: 3, ..here.clone() }, "uses 3 ports and the receiver listens on 2"),
        ];
        for (there, words) in cases {
            let objection = here.objection(&there).unwrap();
            assert!(objection.contains(words), "{objection}");
        }
    }
}
