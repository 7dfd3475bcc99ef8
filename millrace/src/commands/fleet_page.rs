//! `millrace fleet page`: a read-only page of the fleet for browsers on this machine.

use super::fleet_etcd::At;
use crate::output::{self, Failure, Outcome};
use clap::Args;
use daemon::log;
use std::net::SocketAddr;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet page
  millrace fleet page --listen 127.0.0.1:9480 --credentials ~/fleet-operator

Serves http://127.0.0.1:9480/ until Ctrl-C: hosts, revisions, lag, findings, moves and history. It reads etcd as you, at most once a
second, and nothing can be changed. Only addresses of loopback are taken: every user of this machine sees what the page shows.")]
pub(super) struct Page {
    /// The loopback address to serve.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    listen: SocketAddr,
    #[command(flatten)]
    at: At,
}

impl Page {
    pub(super) fn run(&self) -> Outcome {
        let levels = std::env::var("MILLRACE_LOG").ok();
        log::start(levels.as_deref()).map_err(Failure::Failed)?;
        log::write_aside().map_err(Failure::Failed)?;
        fleet::page::serve(self.at.access()?, self.listen, &mut output::tell)?;
        Ok(ExitCode::SUCCESS)
    }
}
