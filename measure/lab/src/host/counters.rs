//! Counters of the kernel, read from `/proc`, in the network namespace of the calling thread.

use super::protocol::Reading;
use procfs::FromRead;
use procfs::net::{DeviceStatus, InterfaceDeviceStatus, RouteEntries, RouteEntry};
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use traffic::measure::{CpuSample, named};

/// Unit of the processor times in `/proc/stat`, in nanoseconds (proc(5), USER_HZ).
const TICK_NS: u64 = 10_000_000;

/// Returns the path of a file of `/proc/net` in the thread's namespace: `/proc/net` itself shows
/// the namespace of the process, which the thread may have left.
fn path(file: &str) -> String {
    format!("/proc/thread-self/net/{file}")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_default()
}

/// Returns the kernel's part of a reading; the caller adds that of the load.
pub(super) fn read(link: &str) -> Reading {
    let links = InterfaceDeviceStatus::from_file(path("dev")).map(|links| links.0);
    let link = links.ok().and_then(|mut links| links.remove(link));
    let carried = |of: fn(&DeviceStatus) -> u64| link.as_ref().map_or(0, of);
    let nanoseconds = |clock| {
        let time = Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(0)
    };
    let busy = CpuSample::read().map_or(0, |sample| sample.busy());
    let snmp = text("snmp");
    let tcp = |name| named(&snmp, "Tcp", name).unwrap_or(0);
    Reading {
        at_ns: nanoseconds(ClockId::Monotonic),
        own_ns: nanoseconds(ClockId::ProcessCPUTime),
        busy_ns: busy.saturating_mul(TICK_NS),
        retransmits: tcp("RetransSegs"),
        sent_segments: tcp("OutSegs"),
        sent_frames: carried(|link| link.sent_packets),
        sent_bytes: carried(|link| link.sent_bytes),
        arrived_frames: carried(|link| link.recv_packets),
        arrived_bytes: carried(|link| link.recv_bytes),
        ..Reading::default()
    }
}

/// Returns the link that reaches an address directly (IPv4), or that has the address (IPv6).
pub(super) fn link_of(address: IpAddr) -> Option<String> {
    match address.to_canonical() {
        IpAddr::V4(address) => link_of_v4(RouteEntries::from_file(path("route")).ok()?, address),
        IpAddr::V6(address) => link_of_v6(&text("if_inet6"), address),
    }
}

/// Returns the link of the longest matching prefix without a gateway.
fn link_of_v4(RouteEntries(routes): RouteEntries, address: Ipv4Addr) -> Option<String> {
    let direct = |route: &RouteEntry| {
        route.gateway.is_unspecified() && address & route.mask == route.destination
    };
    let narrowest = routes.into_iter().filter(direct).max_by_key(|route| u32::from(route.mask));
    narrowest.map(|route| route.iface)
}

/// Returns the link that has an address, from the text of `/proc/net/if_inet6`: address, index,
/// length of the prefix, scope, flags, link.
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
        let of = |address: [u8; 4]| {
            link_of_v4(RouteEntries::from_read(table.as_bytes()).unwrap(), address.into())
        };
        assert_eq!(of([10, 9, 0, 2]).as_deref(), Some("tap0"));
        assert_eq!(of([10, 8, 0, 2]).as_deref(), Some("eth0"));
        assert_eq!(of([192, 0, 2, 1]), None);
        let six = "fd090000000000000000000000000002 07 40 00 80     eth1\n";
        assert_eq!(link_of_v6(six, "fd09::2".parse().unwrap()).as_deref(), Some("eth1"));
        assert_eq!(link_of_v6(six, "fd09::3".parse().unwrap()), None);
    }

    #[test]
    fn this_machine_has_been_busy_and_its_links_have_carried() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = read("lo");
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = read("lo");
        assert!(after.at_ns > before.at_ns && after.busy_ns > 0);
        // Every frame sent on `lo` also arrives on it.
        for (frames, bytes) in [
            (after.sent_frames - before.sent_frames, after.sent_bytes - before.sent_bytes),
            (
                after.arrived_frames - before.arrived_frames,
                after.arrived_bytes - before.arrived_bytes,
            ),
        ] {
            assert!(frames >= 1 && bytes >= 1000 + frames, "{frames} frames, {bytes} bytes");
        }
        assert_eq!(read("no-such-link").arrived_bytes, 0);
    }
}
