//! `millrace cni`: the Container Network Interface plugin. Results and errors have the
//! specification's form.

use crate::global::Global;
use crate::output::{self, Outcome};
use clap::Args;
use std::process::ExitCode;

/// The link by which runtimes call the plugin, without arguments.
pub(crate) const LINK: &str = "millrace-cni";

#[derive(Args)]
#[command(after_help = "\
Examples:
  ln -s /usr/bin/millrace /opt/cni/bin/millrace-cni    # used by \"type\": \"millrace-cni\"
  echo '{\"cniVersion\": \"1.1.0\"}' | CNI_COMMAND=VERSION millrace cni

Run under the name millrace-cni, millrace is this command. It implements ADD, DEL, CHECK, STATUS, GC
and VERSION of CNI 0.3.0 to 1.1.0. It reads CNI_COMMAND and the other variables from the environment
and the network configuration from standard input, and writes results and errors as JSON to standard
output. See docs/containers.md.")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, global: &Global) -> Outcome {
    let variable = |name: &str| std::env::var(name).ok();
    let answer = cni::answer(variable, std::io::stdin().lock(), &global.socket());
    if let Some(text) = answer.text {
        output::print(&text.to_string())?;
    }
    Ok(if answer.is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
