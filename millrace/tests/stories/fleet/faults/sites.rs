//! Eight hosts, each with a switch, an agent and a guest, and the model of their fleet.

use super::super::hosts::{FOLDER, lay_cables, start_daemon, wire};
use super::{CLAIMED, NETWORK, PORTS, connect, distance, members, members::plug};
use crate::host::Host;
use crate::sandbox::run;
use crate::switch::millrace;
use api::body::Origin;
use api::client::Client;
use config::PortConfig;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;

pub(super) const COUNT: usize = 8;
pub(super) const NAMES: [&str; COUNT] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];
const GUESTS: [&str; COUNT] = ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"];

/// The kernel's number of the first host's namespace; the recorder tells hosts by these numbers.
/// The kernel itself numbers other namespaces from 0.
pub(super) const FIRST: usize = 100;

/// A host's switch and its agent.
pub(super) struct Site {
    host: Host,
    name: &'static str,
    number: usize,
    daemon: Child,
    agent: Mutex<Option<Child>>,
}

/// Returns all sites, and the guests on them.
pub(super) fn sites() -> (Vec<Site>, [Host; COUNT]) {
    lay_cables();
    let guests = GUESTS.map(Host::new);
    (NAMES.iter().enumerate().map(|(number, name)| Site::new(number, name)).collect(), guests)
}

impl Site {
    fn new(number: usize, name: &'static str) -> Site {
        let host = Host::new(name);
        // Set before the kernel assigns a number itself, which it does for the first device that
        // another namespace knows.
        run(&format!("ip netns set {name} {}", FIRST + number));
        connect(name, 101 + number);
        wire(host, name);
        let site =
            Site { host, name, number, daemon: start_daemon(host, name), agent: Mutex::new(None) };
        site.start_agent();
        site
    }

    /// Starts the agent, unless it runs.
    pub(super) fn start_agent(&self) {
        let mut agent = self.agent.lock().unwrap();
        if agent.is_none() {
            let mut command = self.host.command(millrace().get_program().to_str().unwrap());
            command.env_remove("MILLRACE_SOCKET").env("MILLRACE_LOG", "error");
            command.args(["fleet", "agent", "--host", self.name, "--label", "role=compute"]);
            command.args(["--insecure-http", "--etcd", &self.endpoints()]);
            command.args(["--state-dir", &format!("/run/{}.fleet", self.name)]);
            command.arg("--socket").arg(self.socket());
            *agent = Some(command.spawn().unwrap());
        }
    }

    /// Returns the agent's endpoints: every second host is far from etcd.
    fn endpoints(&self) -> String {
        if self.number % 2 == 1 { distance::endpoints() } else { members::endpoints() }
    }

    /// Returns how the agent has ended, if it has by itself.
    pub(super) fn agent_end(&self) -> Option<ExitStatus> {
        self.agent.lock().unwrap().as_mut()?.try_wait().unwrap()
    }

    pub(super) fn kill_agent(&self) {
        if let Some(mut agent) = self.agent.lock().unwrap().take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    /// Returns the socket of the site's switch.
    pub(super) fn socket(&self) -> PathBuf {
        format!("/run/{}.api", self.name).into()
    }

    /// Cuts the host off from etcd, or connects it again.
    pub(super) fn plug(&self, is_in: bool) {
        plug(self.name, is_in);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_agent();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Returns the fleet's ports on the switch with this socket.
pub(super) fn fleet_ports(socket: &Path) -> Vec<PortConfig> {
    let ports = Client::connect(socket).and_then(|client| client.ports());
    let ports = ports.expect("the switch answers").into_iter();
    ports.filter(|port| port.origin == Origin::Fleet).map(|port| port.config).collect()
}

/// Writes the model with this number. The rate of each port and the hosts with a port `extra`
/// encode the number.
pub(super) fn write_model(number: usize) {
    std::fs::create_dir_all(FOLDER).unwrap();
    let mut text = format!(
        "version = 1\n[[network]]\nname = 'blue'\nvlan = 10\nmtu = 1500\nrate = '{}'\n\
         [[class]]\nname = 'compute'\nlabels = {{ role = 'compute' }}\nworkers = 1\n\
         [[class.uplink]]\nname = 'up'\npacket = 'wire'\n\
         [rollout]\nsteps = ['2', '100%']\nwait = '12s'\nsoak = '1s'\ngate = 'error'\n",
        rate(number)
    );
    let mut port = |name: &str, mac: usize, more: &str| {
        let mac = format!("52:54:00:00:{:02x}:{:02x}", mac / 256, mac % 256);
        text += &format!("[[port]]\nname = '{name}'\nnetwork = 'blue'\nmac = '{mac}'\n{more}\n");
    };
    for (host, name) in NAMES.iter().enumerate() {
        let guest = GUESTS[host];
        port(
            &format!("vm-{name}"),
            host + 1,
            &format!("host = '{name}'\ntap = 'tap0'\nnetns = '{guest}'"),
        );
        if has_extra(number, host) {
            port(
                &format!("extra-{name}"),
                0x200 + host,
                &format!("host = '{name}'\ntap = 'extra'"),
            );
        }
    }
    for claimed in 0..PORTS {
        port(
            &format!("{CLAIMED}{claimed}"),
            0x100 + claimed,
            &format!("tap = '{CLAIMED}{claimed}'"),
        );
    }
    std::fs::write(format!("{FOLDER}/fleet.toml"), text).unwrap();
}

/// Returns the rate that encodes a model's number: far more than the traffic needs, and never a
/// whole number of Mbit, which would be shown differently.
pub(super) fn rate(number: usize) -> String {
    format!("{}kbit", 9_000_001 + number / 999 * 1000 + number % 999)
}

/// Returns the number of the model with this rate.
pub(super) fn number_of(rate: &str) -> Option<usize> {
    let more = rate.strip_suffix("kbit")?.parse::<usize>().ok()?.checked_sub(9_000_000)?;
    (more / 1000 * 999 + more % 1000).checked_sub(1)
}

#[test]
fn each_rate_tells_its_model() {
    for number in [0, 1, 998, 999, 1000, 1997, 1998, 5000] {
        let shown: config::Rate = serde_json::from_value(rate(number).into()).unwrap();
        assert_eq!(number_of(&shown.to_string()), Some(number), "{shown}");
    }
}

pub(super) fn has_extra(number: usize, host: usize) -> bool {
    (number + host) % 2 == 1
}

/// Gives the guests their addresses.
pub(super) fn address(guests: &[Host; COUNT]) {
    for (number, guest) in guests.iter().enumerate() {
        guest.run(&format!("ip link set tap0 address 52:54:00:00:00:{:02x}", number + 1));
        guest.assign_addresses("tap0", u8::try_from(number).unwrap() + 1);
    }
}

/// Makes the network by which hosts reach etcd.
pub(super) fn manage() {
    run("ip link add manage type bridge forward_delay 0 stp_state 0");
    run("ip link set manage up");
    run(&format!("ip address add {NETWORK}.1/24 dev manage"));
}
