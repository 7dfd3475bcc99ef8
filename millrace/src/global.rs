//! The options of every command: the daemon's socket, and JSON.

use crate::output::{Failure, unreachable};
use api::client::Client;
use clap::Args;
use std::path::PathBuf;

/// Options of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// The daemon's socket [default: /run/millrace/api.sock; under $XDG_RUNTIME_DIR if not root].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "MILLRACE_SOCKET",
        value_name = "PATH",
        hide_env_values = true
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON, including errors.
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub(crate) json: bool,
}

impl Global {
    /// Returns the socket on which the daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(daemon::server::default_path)
    }

    /// Returns the socket as an absolute path if it is not the usual one.
    pub(crate) fn unusual_socket(&self) -> Option<PathBuf> {
        let socket = self.socket();
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        Some(socket).filter(|socket| *socket != daemon::server::default_path())
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    /// No daemon answers at the socket.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::connect(&self.socket()).map_err(unreachable)
    }
}
