//! What the kernel counts, out of the texts of `/proc`: of the namespace of the thread that asks.

use super::protocol::Reading;
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use traffic::measure::CpuSample;

/// Processor time is counted in these (proc(5), USER_HZ).
const TICK_NS: u64 = 10_000_000;

fn text(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
}

/// The kernel's part of a reading; the load's is to be added.
pub(super) fn read(link: &str) -> Reading {
    let [arrived_bytes, arrived_frames, sent_bytes, sent_frames] =
        carried(&text("dev"), link).unwrap_or_default();
    let nanoseconds = |clock| {
        let time = Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(0)
    };
    let busy = CpuSample::read().map_or(0, |sample| sample.all().busy());
    let snmp = text("snmp");
    Reading {
        at_ns: nanoseconds(ClockId::Monotonic),
        own_ns: nanoseconds(ClockId::ProcessCPUTime),
        busy_ns: busy.saturating_mul(TICK_NS),
        retransmits: tcp(&snmp, "RetransSegs").unwrap_or(0),
        sent_segments: tcp(&snmp, "OutSegs").unwrap_or(0),
        sent_frames,
        sent_bytes,
        arrived_frames,
        arrived_bytes,
        ..Reading::default()
    }
}

/// Bytes and frames that arrived over a link, and bytes and frames it sent, from the text of `/proc/net/dev`: fields
/// 1, 2, 9 and 10 after the name.
fn carried(dev: &str, link: &str) -> Option<[u64; 4]> {
    let line =
        dev.lines().find_map(|line| line.trim_start().strip_prefix(link)?.strip_prefix(':'))?;
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let field = |place: usize| fields.get(place)?.parse().ok();
    Some([field(0)?, field(1)?, field(8)?, field(9)?])
}

/// A counter of TCP, `RetransSegs`, from the text of `/proc/net/snmp`: a line of names above a line of numbers.
fn tcp(snmp: &str, name: &str) -> Option<u64> {
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let place = tcp.next()?.split_ascii_whitespace().position(|known| known == name)?;
    tcp.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// The link in whose own network an address is.
pub(super) fn link_of(address: IpAddr) -> Option<String> {
    match address.to_canonical() {
        IpAddr::V4(address) => link_of_v4(&text("route"), address),
        IpAddr::V6(address) => link_of_v6(&text("if_inet6"), address),
    }
}

/// From the text of `/proc/net/route`: link, destination, gateway, …, mask as the eighth, in hexadecimal of the machine's
/// own byte order.
fn link_of_v4(route: &str, address: Ipv4Addr) -> Option<String> {
    let wanted = u32::from_ne_bytes(address.octets());
    let direct = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |place: usize| u32::from_str_radix(fields.get(place)?, 16).ok();
        let (destination, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        let same = wanted & mask == destination && gateway == 0;
        same.then(|| (mask.count_ones(), fields.first().map_or("", |name| name).to_owned()))
    };
    route.lines().filter_map(direct).max().map(|(_, name)| name)
}

/// From the text of `/proc/net/if_inet6`: address, index, length of the prefix, scope, flags, link.
fn link_of_v6(addresses: &str, address: Ipv6Addr) -> Option<String> {
    let wanted = u128::from(address);
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let own = u128::from_str_radix(fields.first()?, 16).ok()?;
        (own == wanted).then(|| fields.get(5).copied().map(str::to_owned))?
    };
    addresses.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let dev = "Inter-|\n face |bytes\n  wire0: 1 2 0 0 0 0 0 0 1514 9 0 0 0 0 0 0\n";
        assert_eq!(carried(dev, "wire0"), Some([1, 2, 1514, 9]));
        assert_eq!(carried(dev, "wire"), None);
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 5 7\n";
        assert_eq!((tcp(snmp, "InSegs"), tcp(snmp, "RetransSegs")), (Some(5), Some(7)));
        assert_eq!(tcp("Tcp: RetransSegs\n", "RetransSegs"), None);
    }

    #[test]
    fn the_link_of_an_address_is_the_one_whose_network_is_narrowest() {
        let word = |octets| format!("{:08X}", u32::from_ne_bytes(octets));
        let route = [
            ("eth0", [0, 0, 0, 0], [10, 0, 0, 1], [0, 0, 0, 0]),
            ("eth0", [10, 0, 0, 0], [0, 0, 0, 0], [255, 0, 0, 0]),
            ("tap0", [10, 9, 0, 0], [0, 0, 0, 0], [255, 255, 255, 0]),
        ];
        let lines = route.map(|(link, to, gateway, mask)| {
            format!("{link} {} {} 1 0 0 0 {} 0 0 0", word(to), word(gateway), word(mask))
        });
        let table = format!("Iface Destination Gateway\n{}\n", lines.join("\n"));
        let of = |address: [u8; 4]| link_of_v4(&table, address.into());
        assert_eq!(of([10, 9, 0, 2]).as_deref(), Some("tap0"));
        assert_eq!(of([10, 8, 0, 2]).as_deref(), Some("eth0"));
        assert_eq!(of([192, 0, 2, 1]), None);
        let six = "fd090000000000000000000000000002 07 40 00 80     eth1\n";
        assert_eq!(link_of_v6(six, "fd09::2".parse().unwrap()).as_deref(), Some("eth1"));
        assert_eq!(link_of_v6(six, "fd09::3".parse().unwrap()), None);
    }

    #[test]
    fn this_machine_has_been_busy() {
        let reading = read("lo");
        assert!(reading.at_ns > 0 && reading.busy_ns > 0);
    }
}
