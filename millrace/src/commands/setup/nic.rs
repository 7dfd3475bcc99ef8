//! The network devices of this host, with their addresses and routes, as `ip` tells them.

use super::command;
use super::plan::Words;
use problem::Problem;
use serde::Deserialize;

/// Most neighbours that are told of a move.
const GREETED: usize = 32;

/// A network device.
#[derive(Clone, Debug, Default)]
pub(super) struct Nic {
    pub(super) name: String,
    /// Whether it is an Ethernet device.
    pub(super) is_ethernet: bool,
    /// Its kind if it is virtual: `bridge`, `tun`, `veth`.
    pub(super) kind: Option<String>,
    /// The bridge or bond that it belongs to.
    pub(super) master: Option<String>,
    pub(super) has_carrier: bool,
    pub(super) addresses: Vec<Address>,
    /// Its setting `arp_ignore`.
    pub(super) arp_ignore: u8,
    /// Its routes, as words of `ip route`, except those that come with an address.
    pub(super) routes: Vec<Words>,
}

/// An address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// With the length of the prefix.
    pub(super) text: String,
    /// Its broadcast address.
    pub(super) broadcast: Option<String>,
    /// Whether it names the other end of a line.
    pub(super) has_peer: bool,
    pub(super) is_ipv6: bool,
    /// Whether it has a limited lifetime: DHCP, router advertisements.
    pub(super) is_leased: bool,
}

impl Nic {
    /// Whether a person is asked about it: a physical device, or one that looks like that.
    pub(super) fn is_offered(&self) -> bool {
        self.is_ethernet && self.kind.is_none() && self.refusal().is_none()
    }

    /// Returns why it cannot be the uplink.
    pub(super) fn refusal(&self) -> Option<Problem> {
        let name = &self.name;
        if !self.is_ethernet {
            let problem = Problem::new(format!("{name} cannot be the uplink")).seen("no Ethernet");
            return Some(problem.wanted("an Ethernet device"));
        }
        let master = self.master.as_ref()?;
        let problem = Problem::new(format!("{name} belongs to {master}")).seen(master);
        let problem = problem.wanted("a device that nothing else uses");
        Some(problem.remedy(format!("`ip link set {name} nomaster`, or name another device")))
    }

    /// Whether the host's default route leaves by it.
    pub(super) fn has_default_route(&self) -> bool {
        self.gateway().is_some()
    }

    /// Returns the gateway of its default route.
    pub(super) fn gateway(&self) -> Option<&str> {
        let route =
            self.routes.iter().find(|words| words.first().is_some_and(|it| it == "default"));
        let words = route?;
        let via = words.iter().position(|word| word == "via")?;
        words.get(via + 1).map(String::as_str)
    }

    /// Returns a line about it.
    pub(super) fn described(&self) -> String {
        let addresses = self.addresses.iter().map(|it| it.text.as_str());
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses };
        let carrier = if self.has_carrier { "" } else { ", no carrier" };
        let default = if self.has_default_route() { ", the default route" } else { "" };
        format!("{:<12} {addresses}{default}{carrier}", self.name)
    }
}

/// Returns the name of the device that is most likely meant: one with a carrier and without
/// addresses, else that of the default route.
pub(super) fn best<'n>(nics: &[&'n Nic]) -> &'n str {
    let free = nics.iter().find(|nic| nic.has_carrier && nic.addresses.is_empty());
    let default = || nics.iter().find(|nic| nic.has_default_route());
    free.or_else(default).or(nics.first()).map_or("", |nic| nic.name.as_str())
}

/// Reads all devices.
///
/// # Errors
/// `ip` is missing or fails.
pub(super) fn all() -> Result<Vec<Nic>, Problem> {
    let mut nics = parsed(&told(&["-json", "-details", "address", "show"])?)?;
    for nic in &mut nics {
        let setting = format!("/proc/sys/net/ipv4/conf/{}/arp_ignore", nic.name);
        let setting = std::fs::read_to_string(setting).unwrap_or_default();
        nic.arp_ignore = setting.trim().parse().unwrap_or_default();
        for family in ["-4", "-6"] {
            let text = told(&[family, "route", "show", "table", "all", "dev", &nic.name])?;
            nic.routes.extend(routes(&text));
        }
    }
    Ok(nics)
}

/// Returns up to [`GREETED`] addresses that the host has spoken with on a device.
pub(super) fn neighbours(device: &str) -> Vec<String> {
    let text = told(&["neighbour", "show", "dev", device]).unwrap_or_default();
    let known = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next()?.to_owned();
        let is_known = words.next() == Some("lladdr") && !address.starts_with("fe80");
        is_known.then_some(address)
    };
    text.lines().filter_map(known).take(GREETED).collect()
}

fn told(arguments: &[&str]) -> Result<String, Problem> {
    let words: Vec<&str> = ["ip"].into_iter().chain(arguments.iter().copied()).collect();
    command::run(&words).map_err(|problem| {
        Problem::new("the network devices cannot be read")
            .seen(problem.seen)
            .wanted("the program `ip`")
            .remedy("install iproute2")
    })
}

/// Reads routes, in an order in which they can be added: those to a gateway last. Those that the
/// kernel makes for an address come with that.
fn routes(text: &str) -> Vec<Words> {
    let words = |line: &str| -> Words {
        let state = |word: &&str| !matches!(*word, "linkdown" | "dead" | "pervasive");
        line.split_whitespace().filter(state).map(str::to_owned).collect()
    };
    let is_kept = |words: &Words| {
        let by_kernel = words.windows(2).any(|pair| pair[0] == "proto" && pair[1] == "kernel");
        let by_router = words.windows(2).any(|pair| pair[0] == "proto" && pair[1] == "ra");
        let is_local = words.windows(2).any(|pair| pair[0] == "table" && pair[1] == "local");
        !words.is_empty() && !by_kernel && !by_router && !is_local
    };
    let mut routes: Vec<Words> = text.lines().map(words).filter(is_kept).collect();
    routes.sort_by_key(|words| words.iter().any(|word| word == "via"));
    routes
}

#[derive(Deserialize)]
struct Told {
    ifname: String,
    link_type: String,
    #[serde(default)]
    flags: Vec<String>,
    master: Option<String>,
    linkinfo: Option<LinkInfo>,
    #[serde(default)]
    addr_info: Vec<AddressInfo>,
}

#[derive(Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

#[derive(Deserialize)]
struct AddressInfo {
    family: Option<String>,
    local: Option<String>,
    address: Option<String>,
    broadcast: Option<String>,
    prefixlen: Option<u8>,
    scope: Option<String>,
    #[serde(default)]
    dynamic: bool,
}

fn parsed(text: &str) -> Result<Vec<Nic>, Problem> {
    let told: Vec<Told> = serde_json::from_str(text)
        .map_err(|error| Problem::new("the answer of `ip` cannot be read").seen(error))?;
    Ok(told.into_iter().map(nic).collect())
}

fn nic(told: Told) -> Nic {
    let address = |it: AddressInfo| {
        let is_ipv6 = it.family.as_deref() == Some("inet6");
        // A router's advertisement gives the new device one of its own.
        let is_moved = it.scope.as_deref() == Some("global") && !(is_ipv6 && it.dynamic);
        let text = format!("{}/{}", it.local?, it.prefixlen?);
        let has_peer = it.address.is_some();
        let address =
            Address { text, broadcast: it.broadcast, has_peer, is_ipv6, is_leased: it.dynamic };
        is_moved.then_some(address)
    };
    Nic {
        is_ethernet: told.link_type == "ether",
        kind: told.linkinfo.and_then(|info| info.info_kind),
        master: told.master,
        has_carrier: told.flags.iter().any(|flag| flag == "LOWER_UP"),
        addresses: told.addr_info.into_iter().filter_map(address).collect(),
        name: told.ifname,
        arp_ignore: 0,
        routes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = r#"[
      {"ifname":"lo","link_type":"loopback","flags":["LOOPBACK","UP","LOWER_UP"],
       "addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
      {"ifname":"e1","link_type":"ether","flags":["UP","LOWER_UP"],"addr_info":[
       {"family":"inet","local":"192.0.2.10","prefixlen":24,"scope":"global","dynamic":true},
       {"family":"inet6","local":"2001:db8::5","prefixlen":64,"scope":"global","dynamic":true},
       {"family":"inet6","local":"2001:db8::10","prefixlen":64,"scope":"global"},
       {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]},
      {"ifname":"e2","link_type":"ether","flags":["UP","LOWER_UP"],"addr_info":[]},
      {"ifname":"e3","link_type":"ether","master":"br0","addr_info":[]},
      {"ifname":"br0","link_type":"ether","linkinfo":{"info_kind":"bridge"},"addr_info":[]}]"#;

    #[test]
    fn devices_are_read_with_the_addresses_that_move() {
        let nics = parsed(TOLD).unwrap();
        let offered: Vec<_> = nics.iter().filter(|nic| nic.is_offered()).collect();
        let names: Vec<_> = offered.iter().map(|nic| nic.name.as_str()).collect();
        assert_eq!(names, ["e1", "e2"]);
        let texts: Vec<_> = nics[1].addresses.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts, ["192.0.2.10/24", "2001:db8::10/64"]);
        assert!(nics[1].addresses[0].is_leased && nics[1].addresses[1].is_ipv6);
        assert_eq!(best(&offered), "e2", "without an address");
        assert!(nics[3].refusal().is_some_and(|problem| problem.to_string().contains("br0")));
        assert!(nics[0].refusal().is_some() && nics[4].refusal().is_none());
    }

    #[test]
    fn routes_of_the_kernel_stay_out_and_the_gateway_is_found() {
        let text = "default via 192.0.2.1 proto dhcp src 192.0.2.10 metric 100 \n\
                    192.0.2.0/24 proto kernel scope link src 192.0.2.10 \n\
                    198.51.100.0/24 via 192.0.2.7 linkdown \n";
        let nic = Nic { routes: routes(text), ..Nic::default() };
        assert_eq!(nic.routes.len(), 2);
        assert_eq!(nic.routes[1].join(" "), "198.51.100.0/24 via 192.0.2.7");
        assert_eq!(nic.gateway(), Some("192.0.2.1"));
    }

    /// `default` stood first, and was refused before the gateway could be reached.
    #[test]
    fn the_way_to_a_gateway_comes_before_the_routes_that_need_it() {
        let text = "default via 10.128.0.1\n10.128.0.1 scope link\n10.9.0.0/16 via 10.128.0.1 table 100\n\
                    local 10.128.0.2 table local proto kernel scope host\n";
        let routes = routes(text);
        assert_eq!(routes.len(), 3, "{routes:?}");
        assert_eq!(routes[0].join(" "), "10.128.0.1 scope link");
    }
}
