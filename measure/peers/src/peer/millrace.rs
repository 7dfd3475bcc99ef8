//! Millrace: two vhost-user ports, an uplink if the case has one, one worker, all other settings at
//! their defaults.

use super::{Running, Site, VNICS, connect};
use crate::process::{Process, output};
use crate::stop::Stop;
use crate::uplink::{Driver, UPLINK};
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

pub(super) fn start(site: &Site, poll: &str, stop: &Stop) -> Result<Running> {
    let file = site.directory.join("millrace.toml");
    std::fs::write(&file, configuration(site, poll)?).context("writing the configuration")?;
    let mut command = site.command(&site.millrace);
    command.args(["run", "-c"]).arg(&file);
    connect(Process::start("millrace", &mut command, &site.directory)?, site, stop)
}

/// The guests' addresses are many, so the guard against forged ones is off; the MTU is for the
/// longest frames.
fn configuration(site: &Site, poll: &str) -> Result<String> {
    let api = site.directory.join("api.sock");
    let mut text =
        format!("[switch]\nworkers = [{}]\npoll = {poll:?}\nsocket = {api:?}\n", site.switch_core);
    for vnic in VNICS {
        let socket = site.socket(vnic);
        writeln!(
            text,
            "[[port]]\nname = \"{vnic}\"\nvhost-user = {socket:?}\nmtu = 9000\nmac-spoofing = \"allow\"\nmac-limit = 0"
        )?;
        if site.uplink.is_some_and(|uplink| !uplink.rsc) {
            writeln!(text, "rsc = \"off\"")?;
        }
    }
    if let Some(uplink) = site.uplink {
        let key = if uplink.driver == Driver::Xdp { "xdp" } else { "packet" };
        writeln!(text, "[[port]]\nname = {UPLINK:?}\n{key} = {UPLINK:?}")?;
    }
    Ok(text)
}
