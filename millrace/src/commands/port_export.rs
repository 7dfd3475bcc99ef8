//! `millrace port export` and `import`: a port that goes to another host with its guest.

use crate::cli::Global;
use crate::commands::migrate;
use crate::output::{self, Outcome};
use clap::Args;
use control::migration::{self, PortExport};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port export vm1 > vm1.json
  millrace port export vm1 | ssh other millrace port import

Prints JSON: the settings in force (VLAN, guards, rules, rates, RSC, steering, the RSS key), the indirection table, and the
counters, which begin at 0 at another host. The RSS key is a secret of the two hosts.")]
pub(crate) struct Export {
    /// The port.
    name: String,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port import vm1.json
  millrace port import --dry-run < vm1.json

Adds the port, or sets the keys of the port of that name, whose device and socket stay as they are. Nothing is changed, and the
exit code is 1, where this host lacks what the port needs: a VLAN or the MTU at its uplinks, a team member, the port that it
mirrors to, or where another port has the guest's address.")]
pub(crate) struct Import {
    /// A file of `millrace port export` [default: standard input].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only say what would change.
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
        let import = migration::import(&global.client()?, &export, self.dry_run)?;
        output::show(global, &import, migration::Import::text)?;
        Ok(if import.refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
