//! Completion candidates, fetched from the daemon while the user types.

use api::client::{Client, ClientError};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use config::port_keys;
use daemon::server;
use std::path::PathBuf;

/// One port, or all ports with `--all`. Exactly one of the two is required.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PortOrAll {
    /// The port.
    #[arg(add = ports())]
    port: Option<String>,
    /// All ports.
    #[arg(long)]
    all: bool,
}

/// One port, all ports, or the switch.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PortAllOrSwitch {
    /// The port.
    #[arg(add = ports())]
    port: Option<String>,
    /// All ports.
    #[arg(long)]
    all: bool,
    /// The whole switch, also for ports added later; settings of ports stay.
    #[arg(long)]
    pub(crate) switch: bool,
}

impl PortAllOrSwitch {
    /// Returns the port; `None` for all.
    pub(crate) fn port(&self) -> Option<&str> {
        self.port.as_deref()
    }
}

impl PortOrAll {
    /// Returns the port; `None` for all.
    pub(crate) fn port(&self) -> Option<&str> {
        self.port.as_deref()
    }
}

/// Connects to the daemon that answers where the environment says, or at the usual place.
fn client() -> Result<Client, ClientError> {
    let socket = std::env::var_os("MILLRACE_SOCKET").map(PathBuf::from);
    Client::connect(&socket.unwrap_or_else(server::default_path))
}

/// Completes the name of a port. Offers nothing if no daemon answers.
pub(crate) fn ports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let ports = client().and_then(|client| client.ports()).unwrap_or_default();
        let candidate = |port: api::body::PortBody| {
            CompletionCandidate::new(port.name).help(Some(port.device.into()))
        };
        ports.into_iter().map(candidate).collect()
    })
}

/// Completes the name of a network device of this host.
pub(crate) fn devices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| files("/sys/class/net"))
}

/// Completes the name of a network namespace (`ip netns`).
pub(crate) fn namespaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| files("/run/netns"))
}

/// Returns the names of a directory's files; none if it cannot be read.
fn files(directory: &str) -> Vec<CompletionCandidate> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Completes the number of a worker.
pub(crate) fn workers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let switch = client().and_then(|client| client.switch());
        let candidate = |worker: api::body::WorkerBody| {
            let core = worker.cpu.map(|cpu| format!("core {cpu}").into());
            CompletionCandidate::new(worker.worker.to_string()).help(core)
        };
        switch.map(|switch| switch.workers.into_iter().map(candidate).collect()).unwrap_or_default()
    })
}

/// Completes a word of a rule.
pub(crate) fn rule_words() -> ArgValueCandidates {
    const WORDS: [(&str, &str); 16] = [
        ("allow", "let matching frames pass"),
        ("deny", "drop matching frames"),
        ("mark", "set DSCP and priority of matching frames"),
        ("in", "from the port into the switch"),
        ("out", "toward the port"),
        ("from", "what the sender has to match"),
        ("to", "what the receiver has to match"),
        ("port", "N or N-M"),
        ("dscp", "0 to 63"),
        ("pcp", "0 to 7"),
        ("tcp", "protocol"),
        ("udp", "protocol"),
        ("icmp", "protocol"),
        ("arp", "protocol"),
        ("ip4", "protocol"),
        ("ip6", "protocol"),
    ];
    ArgValueCandidates::new(|| {
        let candidate = |(word, help): &(&'static str, &'static str)| {
            CompletionCandidate::new(*word).help(Some((*help).into()))
        };
        WORDS.iter().map(candidate).collect()
    })
}

/// Completes a key of a port as `KEY=`.
pub(crate) fn keys() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |key: String| CompletionCandidate::new(format!("{key}="));
        port_keys().into_iter().map(candidate).collect()
    })
}
