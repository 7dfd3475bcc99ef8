//! The lab's handle of a host, child or agent: starts it or connects to it, makes its requests, and
//! ends it.

use super::child::Child;
use super::client::{Client, Lost};
use super::command::Command;
use super::protocol::{Identity, Reading, Reply, Request};
use super::{HERE, IN};
use crate::LabError;
use crate::interrupt::Interrupt;
use crate::plan::Values;
use ports::link::{Link, LinkError, LinkOffload};
use ports::namespace;
use problem::token::Whereabouts;
use serde::de::DeserializeOwned;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A host of the experiment.
pub(crate) struct Host {
    name: String,
    /// Dropped before the child, which tells the host to end.
    client: Client,
    /// `None` for an agent, which a user started elsewhere.
    child: Option<Child>,
    /// Every command that ran on the host, for the report.
    commands: Vec<Command>,
}

impl Host {
    /// Starts a child with a network namespace of its own. `program` is this binary, and
    /// `directory` holds the child's log.
    ///
    /// # Errors
    /// The child does not start, or the kernel refuses the namespace.
    pub(crate) fn start(name: &str, program: &Path, directory: &Path) -> Result<Host, LabError> {
        let (child, client) = Child::start(name, program, &[], directory)?;
        Host::ready(name, client, Some(child), "start")
            .map_err(|error| error.where_refused(LabError::NamespaceRefused))
    }

    /// Starts a child in an existing network namespace, or in this process's own for `None`.
    ///
    /// # Errors
    /// The child does not start, or cannot enter the namespace.
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

    /// Connects to an agent. Once `interrupt` is set, its answers are awaited for a second at most.
    ///
    /// # Errors
    /// The agent is not reachable, or refuses the token.
    pub(crate) fn connect(
        name: &str,
        at: &Whereabouts,
        interrupt: &Interrupt,
    ) -> Result<Host, LabError> {
        let doing = format!("connecting to the agent at {}", at.at);
        let client = Client::of_agent(at, interrupt).map_err(LabError::io(doing))?;
        let because =
            |why| LabError::ExistingHosts(format!("the {name}'s agent at {}: {why}", at.at));
        let mut host = Host::ready(name, client, None, "greet")
            .map_err(|error| error.where_refused(because))?;
        host.record(&format!("millrace lab agent --listen {}", at.at));
        Ok(host)
    }

    /// Returns the host after it has answered that it is ready.
    fn ready(
        name: &str,
        client: Client,
        child: Option<Child>,
        doing: &str,
    ) -> Result<Host, LabError> {
        let mut host = Host { name: name.to_owned(), client, child, commands: Vec::new() };
        host.ask::<()>(&Request::Ready, doing, ANSWER_TIMEOUT)?;
        Ok(host)
    }

    /// Returns the process id, by which `ip link … netns PID` and `/proc/PID/ns/net` find the
    /// namespace; 0 for an agent, which is no process's id.
    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Returns the local and remote address of the connection to an agent; `None` for a child.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.client.addresses
    }

    /// Returns every command once, in the order of the first runs.
    pub(crate) fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Runs a command, split at spaces, to its end, and returns its output.
    ///
    /// # Errors
    /// The program is missing or fails, or the host does not answer.
    pub(crate) fn run(&mut self, line: &str) -> Result<String, LabError> {
        self.execute(line.split_ascii_whitespace().map(str::to_owned).collect(), line)
    }

    /// Runs a shell command in a mount namespace of its own.
    ///
    /// # Errors
    /// The command fails, or the host does not answer.
    pub(crate) fn shell(&mut self, line: &str) -> Result<(), LabError> {
        let words = ["unshare", "--mount", "sh", "-c", line].map(str::to_owned).to_vec();
        self.execute(words, line).map(drop)
    }

    fn execute(&mut self, mut words: Vec<String>, line: &str) -> Result<String, LabError> {
        let arguments = words.split_off(words.len().min(1));
        let program = words.pop().unwrap_or_default();
        self.record(line);
        let failed = |output| LabError::Command { command: line.to_owned(), output };
        self.ask(&Request::Run { program, arguments }, line, ANSWER_TIMEOUT)
            .map_err(|error| error.where_refused(failed))
    }

    /// Makes a request that returns no value. `line` is the equivalent command, for the report.
    ///
    /// # Errors
    /// The host refuses the request, or does not answer in time.
    pub(crate) fn order(&mut self, request: &Request, line: &str) -> Result<(), LabError> {
        self.record(line);
        let patience = match request {
            Request::Send { bulk, .. } => ANSWER_TIMEOUT + connecting(bulk.connections),
            _ => ANSWER_TIMEOUT,
        };
        let becomes = matches!(request, Request::Become { .. });
        match self.ask(request, line, patience) {
            // Executing another program ends the conversation.
            Err(LabError::Host { died: true, .. }) if becomes && self.check().is_ok() => Ok(()),
            answered => answered,
        }
    }

    /// Limits the sending rate of all bulk connections together from now on; `None` removes the
    /// limit.
    ///
    /// # Errors
    /// The host does not answer.
    pub(crate) fn limit(&mut self, bits_per_s: Option<u64>) -> Result<(), LabError> {
        let option = bits_per_s.map_or("no -B".to_owned(), |most| format!("-B {most}"));
        self.record(&format!("({option} from here on)"));
        let request = Request::Limit { bits_per_s };
        self.ask(&request, "limit what is sent", ANSWER_TIMEOUT)
    }

    /// Sets the MTU of one of the host's links, in bytes. Also works for the switch, which runs no
    /// commands once it is the daemon.
    ///
    /// # Errors
    /// The link does not exist, or the kernel refuses the MTU.
    pub(crate) fn set_mtu(&mut self, link: &str, mtu: u16) -> Result<(), LabError> {
        let line = format!("ip link set {link} mtu {mtu}");
        self.set_link(link, &line, |link| link.set_mtu(mtu.into()))
    }

    /// Sets one of the host's links up or down.
    ///
    /// # Errors
    /// The link does not exist.
    pub(crate) fn set_up(&mut self, link: &str, up: bool) -> Result<(), LabError> {
        let line = format!("ip link set {link} {}", if up { "up" } else { "down" });
        self.set_link(link, &line, |link| link.set_up(up))
    }

    /// Sets offloads of one of the host's links.
    ///
    /// # Errors
    /// The link does not exist, or lacks an offload.
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

    /// Returns whether an offload of one of the host's links is on.
    ///
    /// # Errors
    /// The link does not exist, or cannot be read.
    pub(crate) fn offload(&self, link: &str, offload: LinkOffload) -> Result<bool, LabError> {
        self.link(link)
            .and_then(|link| link.offload(offload))
            .map_err(|error| self.refused("read its offloads", &error.to_string()))
    }

    /// Changes a link from this process. `line` is the equivalent command, for the report.
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

    /// Runs `open` in the host's network namespace; a socket that it opens stays in that namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `open` fails.
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

    /// Reads the host's counters, and those of one of its links.
    ///
    /// # Errors
    /// The host does not answer.
    pub(crate) fn read(&mut self, link: &str) -> Result<Reading, LabError> {
        self.ask(&Request::Read { link: link.to_owned() }, "read its counters", ANSWER_TIMEOUT)
    }

    /// Returns the machine that the host runs on.
    ///
    /// # Errors
    /// The host does not answer.
    pub(crate) fn identity(&mut self) -> Result<Identity, LabError> {
        self.ask(&Request::Machine, "describe its machine", ANSWER_TIMEOUT)
    }

    /// Returns the name of the link that has an address or reaches it directly.
    ///
    /// # Errors
    /// No link has or reaches the address, or the host does not answer.
    pub(crate) fn link_of(&mut self, address: IpAddr) -> Result<String, LabError> {
        self.ask(&Request::Link { address }, &format!("name the link of {address}"), ANSWER_TIMEOUT)
    }

    /// Makes round trips for `time`, and returns their figures.
    ///
    /// # Errors
    /// The receiver is not reachable, or the host does not answer.
    pub(crate) fn round_trips(
        &mut self,
        to: SocketAddr,
        time: Duration,
    ) -> Result<Values, LabError> {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request::RoundTrips { to, milliseconds };
        self.ask(&request, "make round trips", time + ANSWER_TIMEOUT)
    }

    /// Returns an error with the last lines of the log if the child has ended.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        let lasts = self.child.as_mut().is_none_or(Child::lasts);
        if lasts { Ok(()) } else { Err(self.died("running", "it has ended")) }
    }

    /// Records a command for the report, once even if it runs often.
    fn record(&mut self, line: &str) {
        if !self.commands.iter().any(|known| known.command == line) {
            let command = Command { host: self.name.clone(), command: line.to_owned() };
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

    /// Returns the last lines of the child's log, or for an agent where to look.
    pub(crate) fn last_words(&self) -> String {
        match &self.child {
            Some(child) => child.last_words(),
            None => "see the agent's own output; use the same Millrace on both hosts".to_owned(),
        }
    }
}

/// Returns the time that so many connections may take to open beside running ones.
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
