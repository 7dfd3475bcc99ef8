//! `millrace cni`: the plugin of the Container Network Interface. What it prints is the specification's, errors too.

use crate::cli::Global;
use crate::output::{self, Outcome};
use clap::Args;
use std::process::ExitCode;

/// The name of the link by which runtimes find the plugin: they run it without arguments.
pub(crate) const LINK: &str = "millrace-cni";

#[derive(Args)]
#[command(after_help = "\
Examples:
  ln -s /usr/bin/millrace /opt/cni/bin/millrace-cni    # then \"type\": \"millrace-cni\" in a network of /etc/cni/net.d
  echo '{\"cniVersion\": \"1.1.0\"}' | CNI_COMMAND=VERSION millrace cni

A program that is run by the name millrace-cni is this command. It has the commands ADD, DEL, CHECK, STATUS, GC and VERSION of the
specification's versions 0.3.0 to 1.1.0: CNI_COMMAND and the other variables come in the environment, the network's configuration
at standard input; results and errors are JSON at standard output. See docs/containers.md.")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, global: &Global) -> Outcome {
    let variable = |name: &str| std::env::var(name).ok();
    let answer = cni::answer(variable, std::io::stdin().lock(), &global.socket());
    if let Some(text) = answer.text {
        output::print(&text.to_string())?;
    }
    Ok(if answer.is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
