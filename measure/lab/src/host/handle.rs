//! Our side of a host, child or agent alike: starts it or connects to it, asks it, and sees to it
//! that it ends.

use super::child::Child;
use super::client::{Client, Lost};
use super::protocol::{Identity, Reading, Reply, Request};
use super::{HERE, IN};
use crate::interrupt::Interrupt;
use crate::plan::Values;
use crate::{LabError, report};
use ports::link::{Link, LinkError, LinkOffload};
use ports::namespace;
use problem::token::Whereabouts;
use serde::de::DeserializeOwned;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An answer that has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(15);

/// See the module.
pub(crate) struct Host {
    name: String,
    /// Dropped to tell the host to end, before the child is.
    client: Client,
    /// `None`: it is an agent, which someone started elsewhere.
    child: Option<Child>,
    /// Every command it ran, for the report.
    commands: Vec<report::Command>,
}

impl Host {
    /// Starts a host of this name with a network namespace of its own. `program` is this binary,
    /// and `directory` holds the child's log.
    pub(crate) fn start(name: &str, program: &Path, directory: &Path) -> Result<Host, LabError> {
        let (child, client) = Child::start(name, program, &[], directory)?;
        Host::ready(name, client, Some(child), "start")
            .map_err(|error| error.where_refused(LabError::NamespaceRefused))
    }

    /// Starts a host in a network namespace that is there already, or in our own.
    pub(crate) fn start_in(
        name: &str,
        program: &Path,
        namespace: Option<&Path>,
        directory: &Path,
    ) -> Result<Host, LabError> {
        let path = namespace.map_or(HERE.to_owned(), |path| path.display().to_string());
        let (child, client) = Child::start(name, program, &[IN, &path], directory)?;
        Host::ready(name, client, Some(child), &format!("enter {path}"))
    }

    /// Connects to an agent, which is a host elsewhere. Once interrupted, its answers are hardly
    /// waited for.
    pub(crate) fn connect(
        name: &str,
        at: &Whereabouts,
        interrupt: &Interrupt,
    ) -> Result<Host, LabError> {
        let doing = format!("connecting to the agent at {}", at.at);
        let client = Client::of_agent(at, interrupt).map_err(LabError::io(doing))?;
        let because = |why| LabError::Between(format!("the {name}'s agent at {}: {why}", at.at));
        let mut host = Host::ready(name, client, None, "greet")
            .map_err(|error| error.where_refused(because))?;
        host.record(&format!("millrace lab agent --listen {}", at.at));
        Ok(host)
    }

    /// The host, once it says that it is ready.
    fn ready(
        name: &str,
        client: Client,
        child: Option<Child>,
        doing: &str,
    ) -> Result<Host, LabError> {
        let mut host = Host { name: name.to_owned(), client, child, commands: Vec::new() };
        host.ask::<()>(&Request::Ready, doing, PATIENCE)?;
        Ok(host)
    }

    /// Its process id, by which `ip link … netns PID` and `/proc/PID/ns/net` find its namespace; 0,
    /// which is nobody's, of an agent.
    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Our address and the agent's, as they see each other; `None` of a child.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.client.addresses
    }

    /// Every command it ran, once, in the order of their first run.
    pub(crate) fn commands(&self) -> &[report::Command] {
        &self.commands
    }

    /// Runs a command line of plain words to its end; what it printed.
    pub(crate) fn run(&mut self, line: &str) -> Result<String, LabError> {
        self.execute(line.split_ascii_whitespace().map(str::to_owned).collect(), line)
    }

    /// Runs a line by the shell, with mounts of its own.
    pub(crate) fn shell(&mut self, line: &str) -> Result<(), LabError> {
        let words = ["unshare", "--mount", "sh", "-c", line].map(str::to_owned).to_vec();
        self.execute(words, line).map(drop)
    }

    fn execute(&mut self, mut words: Vec<String>, line: &str) -> Result<String, LabError> {
        let arguments = words.split_off(words.len().min(1));
        let program = words.pop().unwrap_or_default();
        self.record(line);
        let failed = |output| LabError::Command { command: line.to_owned(), output };
        self.ask(&Request::Run { program, arguments }, line, PATIENCE)
            .map_err(|error| error.where_refused(failed))
    }

    /// Asks for something that has no answer but that it is done. `line` is the same as a command,
    /// for the report.
    pub(crate) fn order(&mut self, request: &Request, line: &str) -> Result<(), LabError> {
        self.record(line);
        let patience = match request {
            Request::Send { bulk, .. } => PATIENCE + connecting(bulk.connections),
            _ => PATIENCE,
        };
        let becomes = matches!(request, Request::Become { .. });
        match self.ask(request, line, patience) {
            // The conversation ended with what it was.
            Err(LabError::Host { died: true, .. }) if becomes && self.check().is_ok() => Ok(()),
            answered => answered,
        }
    }

    /// Sends at most so many bits a second from now on, on all bulk connections together. `None`:
    /// as fast as it can.
    pub(crate) fn limit(&mut self, bits_per_s: Option<u64>) -> Result<(), LabError> {
        let option = bits_per_s.map_or("no -B".to_owned(), |most| format!("-B {most}"));
        self.record(&format!("({option} from here on)"));
        let request = Request::Limit { bits_per_s };
        self.ask(&request, "limit what is sent", PATIENCE)
    }

    /// Changes the MTU of one of its links, in bytes. Also of the switch, which runs no commands
    /// any more.
    pub(crate) fn set_mtu(&mut self, link: &str, mtu: u16) -> Result<(), LabError> {
        let line = format!("ip link set {link} mtu {mtu}");
        self.set_link(link, &line, |link| link.set_mtu(mtu.into()))
    }

    /// Sets one of its links up or down.
    pub(crate) fn set_up(&mut self, link: &str, up: bool) -> Result<(), LabError> {
        let line = format!("ip link set {link} {}", if up { "up" } else { "down" });
        self.set_link(link, &line, |link| link.set_up(up))
    }

    /// Turns offloads of one of its links on or off.
    pub(crate) fn set_offloads(
        &mut self,
        link: &str,
        all: &[(LinkOffload, bool)],
    ) -> Result<(), LabError> {
        let words = all
            .iter()
            .map(|(offload, on)| format!(" {} {}", offload.name(), if *on { "on" } else { "off" }));
        let line = format!("ethtool -K {link}{}", words.collect::<String>());
        let set =
            |link: &Link| all.iter().try_for_each(|(which, on)| link.set_offload(*which, *on));
        self.set_link(link, &line, set)
    }

    /// Whether an offload of one of its links is on.
    pub(crate) fn offload(&self, link: &str, offload: LinkOffload) -> Result<bool, LabError> {
        self.link(link)
            .and_then(|link| link.offload(offload))
            .map_err(|error| self.refused("read its offloads", &error.to_string()))
    }

    /// Changes a link from outside. `line` is the same as a command.
    fn set_link(
        &mut self,
        link: &str,
        line: &str,
        change: impl FnOnce(&Link) -> Result<(), LinkError>,
    ) -> Result<(), LabError> {
        self.record(line);
        self.link(link)
            .and_then(|link| change(&link))
            .map_err(|error| self.refused(line, &error.to_string()))
    }

    /// Opens something in its namespace, which that keeps.
    pub(crate) fn within<T: Send>(
        &self,
        open: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        namespace::within(Some(&self.namespace()), open)?
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.process()).into()
    }

    fn link(&self, name: &str) -> Result<Link, LinkError> {
        Link::open(name, Some(&self.namespace()))
    }

    /// Reads its counters.
    pub(crate) fn read(&mut self, link: &str) -> Result<Reading, LabError> {
        self.ask(&Request::Read { link: link.to_owned() }, "read its counters", PATIENCE)
    }

    /// What machine it is.
    pub(crate) fn identity(&mut self) -> Result<Identity, LabError> {
        self.ask(&Request::Machine, "describe its machine", PATIENCE)
    }

    /// The link that has an address.
    pub(crate) fn link_of(&mut self, address: IpAddr) -> Result<String, LabError> {
        self.ask(&Request::Link { address }, &format!("name the link of {address}"), PATIENCE)
    }

    /// Makes round trips for a time.
    pub(crate) fn round_trips(
        &mut self,
        to: SocketAddr,
        time: Duration,
    ) -> Result<Values, LabError> {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request::RoundTrips { to, milliseconds };
        self.ask(&request, "make round trips", time + PATIENCE)
    }

    /// Whether the child still runs; otherwise its last words.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        let lasts = self.child.as_mut().is_none_or(Child::lasts);
        if lasts { Ok(()) } else { Err(self.died("running", "it has ended")) }
    }

    /// Notes a command for the report, once however often it runs.
    fn record(&mut self, line: &str) {
        if !self.commands.iter().any(|known| known.command == line) {
            let command = report::Command { host: self.name.clone(), command: line.to_owned() };
            self.commands.push(command);
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        doing: &str,
        patience: Duration,
    ) -> Result<T, LabError> {
        match self.client.ask(request, patience) {
            Ok(Reply::Done { value }) => {
                T::deserialize(&value).map_err(|_| self.refused(doing, &value.to_string()))
            }
            Ok(Reply::Missing { program }) => Err(missing(program)),
            Ok(Reply::Error { message }) => Err(self.refused(doing, &message)),
            Err(Lost::Late) => {
                Err(self.refused(doing, &format!("no answer in {} s", patience.as_secs())))
            }
            Err(Lost::Interrupted) => Err(LabError::Interrupted),
            Err(Lost::Gone(why)) => Err(self.died(doing, &why)),
        }
    }

    fn refused(&self, doing: &str, output: &str) -> LabError {
        let (host, doing, output) = (self.name.clone(), doing.to_owned(), output.to_owned());
        LabError::Host { host, died: false, doing, output }
    }

    fn died(&self, doing: &str, why: &str) -> LabError {
        let (host, doing) = (self.name.clone(), doing.to_owned());
        LabError::Host { host, died: true, doing, output: format!("{why}; {}", self.last_words()) }
    }

    /// The last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        match &self.child {
            Some(child) => child.last_words(),
            None => "see the agent's own output; use the same Millrace on both hosts".to_owned(),
        }
    }
}

/// How long so many connections may take to open, all sharing the way with those that send already.
pub(crate) fn connecting(connections: u32) -> Duration {
    Duration::from_millis(5) * connections
}

fn missing(program: String) -> LabError {
    let package = match program.as_str() {
        "ip" => "iproute2",
        "ping" => "iputils-ping",
        "iperf3" => "iperf3",
        "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" => "openvswitch-switch",
        _ => "util-linux",
    };
    LabError::ProgramMissing { program, package }
}
