//! `millrace port export` and `import`: a port moves to another host with its guest.

use crate::commands::{migrate, names};
use crate::global::Global;
use crate::output::{self, Outcome};
use clap::Args;
use config::{MacAddress, PortName, SocketPath};
use daemon::migration::{self, PortExport, Terms};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port export vm1 > vm1.json
  millrace port export vm1 | ssh other millrace port import

Prints JSON: the running settings (VLAN, guards, rules, rates, RSC, steering, the RSS key), the
indirection table, and the counters, which start at 0 on another host. Keep the RSS key secret.")]
pub(crate) struct Export {
    /// The port.
    #[arg(add = names::ports())]
    name: String,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port import vm1.json
  millrace port import --dry-run < vm1.json
  millrace port import --as vm1 --vhost-user /run/millrace/vm1.sock --mac 52:54:00:00:00:01 < vm1.json

Adds the port. If a port of that name exists, sets its keys; its device and socket stay. Exits with
1 and changes nothing if this host lacks what the port needs (a VLAN or the MTU at its uplinks, a
team member, the port that it mirrors to), if another port has the guest's address, or if a guest
runs at the port. The file decides what its guest may do here, including its VLAN: for a file from
elsewhere, --as, --vhost-user and --mac restrict it to one port, one socket and one guest.")]
pub(crate) struct Import {
    /// A file from `millrace port export` [default: standard input].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Import as this port [default: the file's].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<PortName>,
    /// Import as a vhost-user port at this socket, instead of the file's device.
    #[arg(long, value_name = "SOCKET")]
    vhost_user: Option<SocketPath>,
    /// Refuse the file unless its guest has this address.
    #[arg(long, value_name = "ADDRESS")]
    mac: Option<MacAddress>,
    /// Change the port even if a guest runs there.
    #[arg(long)]
    force: bool,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
}

impl Export {
    pub(crate) fn run(&self, global: &Global) -> Outcome {
        migrate::print_json(&PortExport::of(&global.client()?, &self.name)?)
    }
}

impl Import {
    pub(crate) fn run(&self, global: &Global) -> Outcome {
        let export = PortExport::read(&migrate::read(self.file.as_deref())?)?;
        let terms = Terms {
            name: self.name.clone(),
            vhost_user: self.vhost_user.clone(),
            mac: self.mac,
            force: self.force,
            dry_run: self.dry_run,
        };
        let import = migration::import(&global.client()?, &export, &terms)?;
        output::show(global, &import, migration::Import::text)?;
        Ok(if import.refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
