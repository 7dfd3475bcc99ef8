//! DPDK's testpmd between two `net_vhost` ports, forwarding every frame unread: the minimum work of
//! a switch.
//!
//! Trains need settings that its documentation leaves to the user: segmentation offload on, ingress
//! flags kept for the egress side, mbufs that hold a whole train, and a burst small enough for the
//! caches.

use super::{Running, Setup, VNICS, connect};
use crate::case::{Case, Load};
use crate::process::{Process, in_own_namespace, output};
use crate::stop::Stop;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "dpdk-testpmd";

pub(super) fn version() -> Result<String> {
    output(Command::new("sh").args(["-c", &format!("command -v {PROGRAM}")]))
        .with_context(|| format!("{PROGRAM} is not installed (package dpdk-dev)"))?;
    let package = output(Command::new("dpkg-query").args(["-W", "-f=${Version}", "dpdk-dev"]));
    Ok(format!("DPDK {}", package.unwrap_or_else(|_| "of unknown version".to_owned())))
}

pub(super) fn start(case: &Case, setup: &Setup, stop: &Stop) -> Result<Running> {
    let core = setup.switch_core;
    let train = case.load == Load::Train;
    let offloads = if train { ",tso=1,legacy-ol-flags=1" } else { "" };
    let mut command = in_own_namespace(Path::new(PROGRAM));
    command.env("RUNTIME_DIRECTORY", &setup.directory);
    command.args(["--lcores", &format!("0@{core},1@{core}"), "-n", "1", "--in-memory"]);
    command.args(["--single-file-segments", "--no-pci", "--no-telemetry", "-m", "1024"]);
    for (number, vnic) in VNICS.iter().enumerate() {
        let socket = setup.socket(vnic);
        let socket = socket.display();
        command.arg(format!("--vdev=net_vhost{number},iface={socket},queues=1{offloads}"));
    }
    command.args(["--", "--nb-cores=1", "--forward-mode=io"]);
    command.args(buffers(case));
    connect(Process::start("testpmd", &mut command, &setup.directory)?, setup, stop)
}

/// Returns mbuf options with one mbuf per frame.
fn buffers(case: &Case) -> &'static [&'static str] {
    if case.load == Load::Train {
        &["--mbuf-size=65535", "--total-num-mbufs=4096", "--burst=4"]
    } else if case.jumbo() {
        &["--mbuf-size=9728", "--total-num-mbufs=16384"]
    } else {
        &["--total-num-mbufs=65536"]
    }
}
