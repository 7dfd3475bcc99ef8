//! Millrace: two vhost-user ports, an uplink if the case has one, one worker, all other settings at
//! their defaults.

use super::{Driver, Running, Setup, UPLINK, VNICS, connect};
use crate::process::{Process, output};
use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

pub(super) fn version(program: &Path) -> Result<String> {
    ensure!(
        program.exists(),
        "{} does not exist: cargo build --release -p millrace",
        program.display()
    );
    Ok(output(Command::new(program).arg("--version"))?.trim().to_owned())
}

pub(super) fn start(setup: &Setup, poll: &str, stop: &Stop) -> Result<Running> {
    let file = setup.directory.join("millrace.toml");
    std::fs::write(&file, configuration(setup, poll)?).context("writing the configuration")?;
    let mut command = setup.command(&setup.millrace);
    command.args(["run", "-c"]).arg(&file);
    connect(Process::start("millrace", &mut command, &setup.directory)?, setup, stop)
}

/// Returns the configuration. The guests have many addresses, so the check for forged ones is off;
/// the MTU fits the longest frames.
fn configuration(setup: &Setup, poll: &str) -> Result<String> {
    let api = setup.directory.join("api.sock");
    let mut text =
        format!("[switch]\nworkers = [{}]\npoll = {poll:?}\nsocket = {api:?}\n", setup.switch_core);
    for vnic in VNICS {
        let socket = setup.socket(vnic);
        writeln!(
            text,
            "[[port]]\nname = \"{vnic}\"\nvhost-user = {socket:?}\nmtu = 9000\nmac-spoofing = \"allow\"\nmac-limit = 0"
        )?;
        if setup.uplink.is_some_and(|uplink| !uplink.rsc) {
            writeln!(text, "rsc = \"off\"")?;
        }
    }
    if let Some(uplink) = setup.uplink {
        let key = if uplink.driver == Driver::Xdp { "xdp" } else { "packet" };
        writeln!(text, "[[port]]\nname = {UPLINK:?}\n{key} = {UPLINK:?}")?;
    }
    Ok(text)
}
