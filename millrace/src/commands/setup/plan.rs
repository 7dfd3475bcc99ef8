//! What a setup does: the configuration, and the commands that move the host's addresses, with
//! those that move them back.

use super::nic::Nic;
use crate::commands::snippet::drawn_address;
use config::Config;
use problem::Problem;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A command with its arguments.
pub(super) type Words = Vec<String>;

/// Names of the ports, and of the host's device.
pub(super) const UPLINK: &str = "uplink0";
pub(super) const HOST: &str = "host";
pub(super) const VM: &str = "vm1";
pub(super) const DEVICE: &str = "host0";

/// What was asked for.
pub(super) struct Wanted {
    pub(super) keeps_addresses: bool,
    /// The daemon's socket, if it is not the usual one.
    pub(super) socket: Option<PathBuf>,
    /// The command line that starts the switch.
    pub(super) start: Option<String>,
    /// The group whose members may connect to the guest's socket.
    pub(super) guests: Option<&'static str>,
}

/// What a setup does.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The uplink's device.
    pub(super) uplink: String,
    /// The whole text of the configuration.
    pub(super) text: String,
    /// What is new in it.
    #[serde(skip)]
    added: String,
    /// The commands that move the addresses.
    pub(super) moves: Vec<Words>,
    /// Those that move them back.
    pub(super) back: Vec<Words>,
    /// The gateway that has to answer afterwards.
    pub(super) gateway: Option<String>,
    /// What starts the switch.
    start: Option<String>,
    /// What a person should know.
    notes: Vec<String>,
}

impl Plan {
    /// Makes the plan for an uplink. `before` is the configuration as it is now, which is kept, as
    /// the package's is, if it has no ports.
    ///
    /// # Errors
    /// The configuration has ports, or cannot be read.
    pub(super) fn of(nic: &Nic, wanted: &Wanted, before: Option<&str>) -> Result<Plan, Problem> {
        let old = before.map(|text| Config::from_toml("the configuration", text)).transpose()?;
        if let Some(port) = old.as_ref().and_then(|old| old.ports.first()) {
            return Err(Problem::new("the configuration has ports already")
                .seen(&port.name)
                .wanted("no configuration, or one without ports")
                .remedy("edit it by hand, or write another file: --file FILE"));
        }
        let has_host = !nic.addresses.is_empty() && !wanted.keeps_addresses;
        if let Some(peer) = nic.addresses.iter().find(|it| has_host && it.has_peer) {
            return Err(Problem::new("an address names the other end of a line")
                .seen(&peer.text)
                .wanted("addresses of a network")
                .remedy("--keep-addresses leaves them where they are"));
        }
        let added = added(nic, wanted, has_host, before.is_some());
        let text = format!("{}{added}", before.unwrap_or_default());
        Config::from_toml("the new configuration", &text)?;
        let (moves, back) = if has_host { moves(nic) } else { Default::default() };
        let gateway = nic.gateway().filter(|_| has_host).map(str::to_owned);
        Ok(Plan {
            uplink: nic.name.clone(),
            text,
            added,
            moves,
            back,
            gateway,
            start: wanted.start.clone(),
            notes: notes(nic, has_host),
        })
    }

    /// Returns it as a person reads it.
    pub(super) fn described(&self, file: &Path) -> String {
        let mut text = format!("This is written to {}:\n\n{}\n", file.display(), self.added);
        self.start.iter().for_each(|line| text += &format!("Then: {line}\n\n"));
        if !self.moves.is_empty() {
            text += "Once the switch runs:\n\n";
            self.moves.iter().for_each(|words| text += &format!("    {}\n", words.join(" ")));
            text += "\n";
        }
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        text
    }
}

/// Returns the lines for the configuration.
fn added(nic: &Nic, wanted: &Wanted, has_host: bool, is_old: bool) -> String {
    let mut text = "# By `millrace setup`; `millrace setup --undo` removes it.\n".to_owned();
    if let Some(socket) = wanted.socket.as_ref().filter(|_| !is_old) {
        text += &format!("[switch]\nsocket = \"{}\"\n\n", socket.display());
    }
    text += &format!("[[port]]\nname = \"{UPLINK}\"\npacket = \"{}\"\n\n", nic.name);
    if has_host {
        text += &format!(
            "# The host itself: its addresses are on this device.\n[[port]]\nname = \"{HOST}\"\ntap = \"{DEVICE}\"\n\n"
        );
    }
    let directory =
        wanted.socket.as_deref().and_then(Path::parent).unwrap_or(Path::new("/run/millrace"));
    text += &format!(
        "[[port]]\nname = \"{VM}\"\nvhost-user = \"{}/{VM}.sock\"\nmac = \"{}\"\n",
        directory.display(),
        drawn_address(&nic.name)
    );
    if let Some(group) = wanted.guests {
        text += &format!("socket-group = \"{group}\"\n");
    }
    text
}

fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the commands that move a device's addresses to the host's port, and back.
fn moves(nic: &Nic) -> (Vec<Words>, Vec<Words>) {
    let from = &nic.name;
    // The uplink would answer questions for the addresses of the other device.
    let quiet = |value: u8| {
        words(&format!("sysctl -qw net.ipv4.conf.{}.arp_ignore={value}", from.replace('.', "/")))
    };
    let mut there = vec![quiet(1), words(&format!("ip link set {DEVICE} up"))];
    let mut back = Vec::new();
    for address in &nic.addresses {
        let text = &address.text;
        let mut more = if address.is_ipv6 { " nodad" } else { "" }.to_owned();
        more += &address.broadcast.iter().map(|it| format!(" brd {it}")).collect::<String>();
        there.push(words(&format!("ip address del {text} dev {from}")));
        there.push(words(&format!("ip address add {text} dev {DEVICE}{more}")));
        back.push(words(&format!("ip address replace {text} dev {from}{more}")));
    }
    let route = |device: &str| {
        let device = device.to_owned();
        nic.routes.iter().map(move |route| {
            let is_ipv6 = route.iter().any(|word| word.contains(':'));
            let mut words = words(if is_ipv6 { "ip -6 route replace" } else { "ip route replace" });
            words.extend(route.iter().cloned().chain(["dev".to_owned(), device.clone()]));
            words
        })
    };
    there.extend(route(DEVICE));
    // The device goes with its port; until then its addresses must not be there twice.
    let mut undo = vec![words(&format!("ip address flush dev {DEVICE}"))];
    undo.append(&mut back);
    undo.extend(route(from));
    undo.push(quiet(nic.arp_ignore));
    (there, undo)
}

fn notes(nic: &Nic, has_host: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if has_host && nic.addresses.iter().any(|it| it.is_leased) {
        notes.push(format!(
            "An address of {0} is leased by DHCP: let your network configuration ask for it at {DEVICE} and leave {0} without \
             one, or the next renewal brings it back.",
            nic.name
        ));
    }
    if has_host {
        notes.push(format!(
            "After a reboot the addresses are where your network configuration puts them: name {DEVICE} there instead of {} \
             (docs/tutorials/one-nic.md).",
            nic.name
        ));
    } else if !nic.addresses.is_empty() {
        notes.push(format!(
            "Guests and this host cannot reach each other by the addresses on {}.",
            nic.name
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::nic::Address;
    use super::*;

    fn nic(addresses: &[&str]) -> Nic {
        let address = |text: &&str| Address {
            text: (*text).to_owned(),
            is_ipv6: text.contains(':'),
            broadcast: None,
            has_peer: false,
            is_leased: false,
        };
        Nic {
            name: "e1".to_owned(),
            is_ethernet: true,
            addresses: addresses.iter().map(address).collect(),
            routes: vec![words("default via 192.0.2.1 metric 100")],
            ..Nic::default()
        }
    }

    fn wanted(keeps_addresses: bool) -> Wanted {
        Wanted { keeps_addresses, socket: None, start: None, guests: None }
    }

    #[test]
    fn addresses_and_routes_move_and_come_back() {
        let plan = Plan::of(&nic(&["192.0.2.10/24"]), &wanted(false), None).unwrap();
        let lines = |all: &[Words]| all.iter().map(|it| it.join(" ")).collect::<Vec<_>>();
        assert_eq!(
            lines(&plan.moves),
            [
                "sysctl -qw net.ipv4.conf.e1.arp_ignore=1",
                "ip link set host0 up",
                "ip address del 192.0.2.10/24 dev e1",
                "ip address add 192.0.2.10/24 dev host0",
                "ip route replace default via 192.0.2.1 metric 100 dev host0",
            ]
        );
        assert_eq!(
            lines(&plan.back),
            [
                "ip address flush dev host0",
                "ip address replace 192.0.2.10/24 dev e1",
                "ip route replace default via 192.0.2.1 metric 100 dev e1",
                "sysctl -qw net.ipv4.conf.e1.arp_ignore=0",
            ]
        );
        assert_eq!(plan.gateway.as_deref(), Some("192.0.2.1"));
        let config = Config::from_toml("t", &plan.text).unwrap();
        let names: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, [UPLINK, HOST, VM]);
    }

    #[test]
    fn without_an_address_to_move_the_host_gets_no_port() {
        for (nic, keeps) in [(nic(&[]), false), (nic(&["192.0.2.10/24"]), true)] {
            let plan = Plan::of(&nic, &wanted(keeps), None).unwrap();
            assert!(plan.moves.is_empty() && plan.back.is_empty() && plan.gateway.is_none());
            assert!(!plan.text.contains(DEVICE), "{}", plan.text);
        }
    }

    #[test]
    fn a_file_without_ports_is_kept_and_one_with_ports_refused() {
        let comments = "# every key, commented out\n#[[port]]\n";
        let plan = Plan::of(&nic(&[]), &wanted(false), Some(comments)).unwrap();
        assert!(plan.text.starts_with(comments) && plan.text.len() > comments.len());
        let refused = Plan::of(&nic(&[]), &wanted(false), Some("[[port]]\nname='a'\ntap='t'\n"));
        assert!(refused.unwrap_err().to_string().contains("has ports already"));
    }
}
