//! The account of a whole load, from its first byte until all of it has arrived: the counts of the
//! sender's application, of the receiver's, and of the kernel's interface.
//!
//! The lab reports the count of the receiver's application. The account reveals a generator that
//! counts bytes that never arrived, and a meter that counts wrong: TCP delivers each byte once, so
//! the two applications must agree to the byte, and the kernel counts the same payload in its
//! frames, retransmissions included.

use super::Check;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of the same bytes at several places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Account {
    /// Bytes that the sender's application gave to its connections.
    pub sent_bytes: u64,
    /// Bytes that the receiver's application got.
    pub received_bytes: u64,
    /// Connections whose last bytes had not arrived when the wait for them ended.
    pub undelivered_connections: u32,
    /// Bytes that the sender's connections still held at that time, according to its kernel.
    #[serde(default)]
    pub undelivered_bytes: u64,
    /// TCP payload in the frames that arrived over the receiver's link, by its counters.
    pub interface_payload_bytes: u64,
    /// Bytes that the switch delivered to the toggled port, by that port's counters. `None` if the
    /// load has no other route.
    #[serde(default)]
    pub port_bytes: Option<u64>,
}

impl Account {
    /// Returns the account of two loads together. Bytes of a port are known if both are.
    pub(crate) fn plus(self, other: Account) -> Account {
        let ports = self.port_bytes.zip(other.port_bytes);
        Account {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            undelivered_connections: self.undelivered_connections + other.undelivered_connections,
            undelivered_bytes: self.undelivered_bytes + other.undelivered_bytes,
            interface_payload_bytes: self.interface_payload_bytes + other.interface_payload_bytes,
            port_bytes: ports.map(|(one, another)| one + another),
        }
    }
}

/// Largest difference, as a fraction, between two counts of the same bytes.
const TOLERANCE: f64 = 0.01;

/// Returns the difference between two counts, as a fraction of the second.
pub(crate) fn difference(counted: u64, truth: u64) -> f64 {
    counted as f64 / truth.max(1) as f64 - 1.0
}

/// Checks that all counts agree. `accounts` are those of all loads of a report.
pub(crate) fn checks(accounts: &[Account]) -> Vec<Check> {
    let sum = |count: fn(&Account) -> u64| accounts.iter().map(count).sum::<u64>();
    let received = sum(|account| account.received_bytes);
    let sent = sum(|account| account.sent_bytes);
    if sent + received == 0 {
        return Vec::new();
    }
    let undelivered: u32 = accounts.iter().map(|account| account.undelivered_connections).sum();
    // Bytes that have just arrived may be counted on both sides.
    let held = sum(|account| account.undelivered_bytes);
    let on_its_way = undelivered > 0 && difference(received + held, sent).abs() <= TOLERANCE;
    let carried = sum(|account| account.interface_payload_bytes);
    let rest = match undelivered {
        _ if sent == received => String::new(),
        0 => ": the figures are the receiver's".to_owned(),
        count => format!("; {count} connections had undelivered bytes at the end: {held}"),
    };
    let seen =
        format!("the sender's application counted {sent} bytes, the receiver's {received}{rest}");
    let passed = sent == received || on_its_way;
    let arrived = Check { name: "All sent bytes arrived".into(), passed, seen };
    let apart = difference(carried, received);
    let seen = format!(
        "{carried} bytes of payload in the frames on the receiver's link, {:+.3} % compared with its application",
        100.0 * apart
    );
    let passed = apart.abs() <= TOLERANCE;
    let agree = Check { name: "The kernel's interface counters agree".into(), passed, seen };
    let ports: Option<u64> = accounts.iter().map(|account| account.port_bytes).sum();
    [arrived, agree].into_iter().chain(ports.map(|given| crossed(given, received))).collect()
}

/// Checks that the load crossed the toggled port, to which at least the payload was delivered. The
/// payload does not include the headers that coalescing saves.
fn crossed(given: u64, received: u64) -> Check {
    let passed = difference(given, received) >= -TOLERANCE;
    let seen = format!("the switch gave {given} bytes to the port, {received} arrived");
    Check { name: "The load crossed the toggled port".into(), passed, seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_lies_and_a_meter_that_is_off_are_caught() {
        let honest = Account {
            sent_bytes: 1_000_000,
            received_bytes: 1_000_000,
            undelivered_connections: 0,
            undelivered_bytes: 0,
            interface_payload_bytes: 1_004_000,
            port_bytes: None,
        };
        let passed =
            |account| checks(&[honest, account]).iter().map(|check| check.passed).collect();
        let found: [Vec<bool>; 5] = [
            passed(honest),
            passed(Account { sent_bytes: 1_111_111, ..honest }),
            passed(Account { interface_payload_bytes: 900_000, ..honest }),
            passed(Account {
                sent_bytes: 1_900_000,
                undelivered_connections: 1,
                undelivered_bytes: 900_000,
                ..honest
            }),
            passed(Account { sent_bytes: 1_900_000, undelivered_connections: 1, ..honest }),
        ];
        assert_eq!(
            found,
            [
                vec![true, true],
                vec![false, true],
                vec![true, false],
                vec![true, true],
                vec![false, true]
            ]
        );
        assert_eq!(checks(&[]), []);
        let lost = Account { sent_bytes: 1_000_000, ..Account::default() };
        assert!(checks(&[lost]).iter().all(|check| !check.passed), "nothing arrived");
        let crossed = |given| {
            let account = Account { port_bytes: Some(given), ..honest };
            checks(&[account, account]).last().map(|check| check.passed)
        };
        assert_eq!([crossed(1_030_000), crossed(400_000)], [Some(true), Some(false)]);
    }
}
