//! Counters that the kernel keeps for a whole host or network namespace: retransmissions,
//! datagrams, interrupts, packets.
//!
//! They include the traffic of other programs, so the report says "host" wherever one of them is
//! shown.

use super::Figure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::read_to_string;

counters! {
    /// Retransmitted segments and their reasons, from /proc/net/snmp and /proc/net/netstat.
    pub struct TcpRetransmits {
        /// All retransmitted segments.
        segments,
        /// Segments lost again after a retransmission.
        lost,
        /// Opening segments (SYN).
        syn,
        /// Segments sent again by fast retransmit.
        fast,
        /// Segments sent again in slow start.
        slow_start,
        /// Retransmissions that could not be sent.
        failed,
    }
}

counters! {
    /// Datagrams of the network namespace, from /proc/net/snmp.
    pub struct Udp {
        /// Delivered to applications.
        received,
        /// Sent by applications.
        sent,
        /// Received and not delivered, for whatever reason.
        receive_errors,
        /// Datagrams not delivered because a socket's buffer was full.
        receive_buffer_full,
    }
}

counters! {
    /// Packets of one interface, from /sys/class/net/NAME/statistics.
    pub struct InterfaceCounters {
        /// Sent.
        sent_packets,
        /// Received.
        received_packets,
    }
}

/// All counters at one moment; missing ones are `None`.
#[derive(Clone, Debug, Default)]
pub struct KernelCounters {
    tcp: Option<TcpRetransmits>,
    udp: Option<Udp>,
    net_rx_softirqs: Option<u64>,
    interrupts: Option<u64>,
    interface: Option<InterfaceCounters>,
}

/// What was added between two moments.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelDelta {
    /// Retransmissions of all connections of the network namespace.
    pub tcp_retransmits: Figure<TcpRetransmits>,
    /// Datagrams of the network namespace.
    pub udp: Figure<Udp>,
    /// Receive runs of the network stack on all processors: the nearest to NTttcp's DPCs.
    pub net_rx_softirqs: Figure<u64>,
    /// Interrupts of all devices and processors, or of the named device.
    pub interrupts: Figure<u64>,
    /// Packets of the named interface.
    pub interface: Figure<InterfaceCounters>,
}

impl KernelCounters {
    /// Reads all counters. `interface` names the interface, `interrupts` a part of the lines to
    /// count.
    pub fn read(interface: Option<&str>, interrupts: Option<&str>) -> KernelCounters {
        let text = |path: &str| read_to_string(path).ok();
        let snmp = text("/proc/net/snmp");
        let netstat = text("/proc/net/netstat").unwrap_or_default();
        KernelCounters {
            tcp: snmp.as_deref().and_then(|snmp| tcp_retransmits(snmp, &netstat)),
            udp: snmp.as_deref().and_then(udp),
            net_rx_softirqs: text("/proc/softirqs")
                .and_then(|softirqs| row_sum(&softirqs, "NET_RX:")),
            interrupts: match interrupts {
                Some(device) => text("/proc/interrupts").and_then(|rows| row_sum(&rows, device)),
                None => text("/proc/stat").and_then(|stat| all_interrupts(&stat)),
            },
            interface: interface.and_then(interface_counters),
        }
    }

    /// Returns what was added since an earlier reading.
    pub fn since(&self, earlier: &KernelCounters) -> KernelDelta {
        let KernelCounters { tcp, udp, net_rx_softirqs, interrupts, interface } = self;
        let count = |now: &u64, then: &u64| now.saturating_sub(*then);
        let tcp_from = "/proc/net/snmp and netstat, whole host";
        let udp_from = "/proc/net/snmp, whole host";
        let softirqs = "/proc/softirqs NET_RX, all processors";
        let interrupts_from = "/proc/interrupts or /proc/stat, all processors";
        let links = "/sys/class/net statistics";
        KernelDelta {
            tcp_retransmits: delta(tcp, &earlier.tcp, tcp_from, TcpRetransmits::since),
            udp: delta(udp, &earlier.udp, udp_from, Udp::since),
            net_rx_softirqs: delta(net_rx_softirqs, &earlier.net_rx_softirqs, softirqs, count),
            interrupts: delta(interrupts, &earlier.interrupts, interrupts_from, count),
            interface: delta(interface, &earlier.interface, links, InterfaceCounters::since),
        }
    }
}

fn delta<T>(
    now: &Option<T>,
    then: &Option<T>,
    source: &str,
    minus: impl FnOnce(&T, &T) -> T,
) -> Figure<T> {
    match now.as_ref().zip(then.as_ref()) {
        Some((now, then)) => Figure::measured(minus(now, then), source),
        None => Figure::absent(format!("not asked for, or not there ({source})")),
    }
}

/// Returns a number of /proc/net/snmp or netstat, which have a line of names and a line of values
/// for each protocol.
pub fn named(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let place = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    lines.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
}

fn tcp_retransmits(snmp: &str, netstat: &str) -> Option<TcpRetransmits> {
    let extra = |name| named(netstat, "TcpExt", name).unwrap_or(0);
    Some(TcpRetransmits {
        segments: named(snmp, "Tcp", "RetransSegs")?,
        lost: extra("TCPLostRetransmit"),
        syn: extra("TCPSynRetrans"),
        fast: extra("TCPFastRetrans"),
        slow_start: extra("TCPSlowStartRetrans"),
        failed: extra("TCPRetransFail"),
    })
}

fn udp(snmp: &str) -> Option<Udp> {
    let number = |name| named(snmp, "Udp", name);
    Some(Udp {
        received: number("InDatagrams")?,
        sent: number("OutDatagrams")?,
        receive_errors: number("InErrors")?,
        receive_buffer_full: number("RcvbufErrors").unwrap_or(0),
    })
}

/// Returns the sum over processors of all rows that contain `label`; `None` if there is no such
/// row.
fn row_sum(text: &str, label: &str) -> Option<u64> {
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(label)).collect();
    let sum = |row: &str| -> u64 {
        let columns = row.split_once(':').map_or("", |(_, columns)| columns);
        columns.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok()).sum()
    };
    (!rows.is_empty()).then(|| rows.into_iter().map(sum).sum())
}

fn all_interrupts(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("intr "))?.split(' ').next()?.parse().ok()
}

fn interface_counters(name: &str) -> Option<InterfaceCounters> {
    if name.contains('/') {
        return None;
    }
    let number = |counter: &str| {
        let path = format!("/sys/class/net/{name}/statistics/{counter}");
        read_to_string(path).ok()?.trim().parse().ok()
    };
    Some(InterfaceCounters {
        sent_packets: number("tx_packets")?,
        received_packets: number("rx_packets")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_found_by_name_and_columns_end_at_the_first_word() {
        let interrupts = "  24:  10  20  IO-APIC 1-edge virtio0-input\n  25:   1   2  IO-APIC 2-edge virtio1-input\n";
        assert_eq!(row_sum(interrupts, "virtio"), Some(33));
        assert_eq!(row_sum(interrupts, "mlx5"), None);
        let snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 5 0 2 7 1\nTcp: A RetransSegs\nTcp: 1 9\n";
        assert_eq!(
            udp(snmp),
            Some(Udp { received: 5, sent: 7, receive_errors: 2, receive_buffer_full: 1 })
        );
        assert_eq!(tcp_retransmits(snmp, "").map(|tcp| tcp.segments), Some(9));
    }

    #[test]
    fn what_is_not_there_has_a_reason() {
        let first = KernelCounters::read(Some("no-such-interface"), Some("no such device"));
        let delta = first.since(&first);
        assert!(delta.interface.value.is_none() && delta.interface.reason.is_some());
        assert!(delta.interrupts.value.is_none());
        assert_eq!(delta.net_rx_softirqs.value, Some(0));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", label in ".{0,5}") {
            let _ = (row_sum(&text, &label), named(&text, "Tcp", &label), all_interrupts(&text));
        }
    }
}
