//! Completion candidates, fetched from the daemon while the user types.

use api::client::Client;
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

/// Completes the name of a port. Offers nothing if no daemon answers.
pub(crate) fn ports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let socket = std::env::var_os("MILLRACE_SOCKET").map(PathBuf::from);
        let client = Client::connect(&socket.unwrap_or_else(server::default_path));
        let ports = client.and_then(|client| client.ports()).unwrap_or_default();
        let candidate = |port: api::body::PortBody| {
            CompletionCandidate::new(port.name).help(Some(port.device.into()))
        };
        ports.into_iter().map(candidate).collect()
    })
}

/// Completes a key of a port as `KEY=`.
pub(crate) fn keys() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |key: String| CompletionCandidate::new(format!("{key}="));
        port_keys().into_iter().map(candidate).collect()
    })
}
