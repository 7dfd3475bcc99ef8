//! Open vSwitch with DPDK: one bridge that learns addresses (NORMAL), one polling thread, two
//! vhost-user ports, and an uplink if the case has one.
//!
//! The switch connects to our sockets, which trains require and everything else permits. Its
//! database is in the sample's directory, and its devices are in its own network namespace: an Open
//! vSwitch of the host is not touched.

use super::{Running, Site, VNICS, accept};
use crate::case::{Case, Load};
use crate::process::{Process, contained, output};
use crate::stop::Stop;
use crate::uplink::{Driver, UPLINK};
use anyhow::{Context, Result, ensure};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// The build with DPDK; the one in PATH has none.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const DATABASE: &str = "ovsdb-server";

pub(super) fn version() -> Result<String> {
    ensure!(
        Path::new(SWITCH).exists(),
        "{SWITCH} is not installed (package openvswitch-switch-dpdk)"
    );
    let text = output(Command::new(SWITCH).arg("--version"))?;
    Ok(text.lines().take(2).collect::<Vec<_>>().join(", "))
}

pub(super) fn start(case: &Case, site: &Site, stop: &Stop) -> Result<Running> {
    let [first, second] = VNICS.map(|vnic| UnixListener::bind(site.socket(vnic)));
    let listeners = [first?, second?];
    let database = start_database(site, stop)?;
    configure(case, site)?;
    let mut command = site.command(Path::new(SWITCH));
    command.arg(remote(site)).arg(control(site, "switch")).arg("--no-chdir");
    surround(&mut command, site);
    let switch = Process::start("ovs-vswitchd", &mut command, &site.directory)?;
    add_ports(case, site).with_context(|| switch.last_words())?;
    accept(vec![switch, database], &listeners, stop)
}

/// All its paths are in the sample's directory.
fn surround<'c>(command: &'c mut Command, site: &Site) -> &'c mut Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, &site.directory);
    }
    command
}

fn remote(site: &Site) -> String {
    format!("unix:{}", site.directory.join("db.sock").display())
}

fn control(site: &Site, name: &str) -> String {
    format!("--unixctl={}", site.directory.join(name).with_extension("ctl").display())
}

fn start_database(site: &Site, stop: &Stop) -> Result<Process> {
    let file = site.directory.join("conf.db");
    let mut create = Command::new("ovsdb-tool");
    output(surround(create.arg("create").arg(&file).arg(SCHEMA), site))?;
    let mut command = contained(Path::new(DATABASE));
    command.arg(&file).arg(format!("--remote=p{}", remote(site))).arg(control(site, "database"));
    let mut process = Process::start(DATABASE, surround(&mut command, site), &site.directory)?;
    let answers = stop.wait_for(super::PATIENCE, || {
        process.check()?;
        Ok(vsctl(site, &["--no-wait", "init"]).ok())
    })?;
    answers.with_context(|| format!("{DATABASE} does not answer: {}", process.last_words()))?;
    Ok(process)
}

fn vsctl(site: &Site, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ovs-vsctl");
    command.arg(format!("--db={}", remote(site))).arg("--timeout=20").args(arguments);
    output(surround(&mut command, site)).map(drop)
}

/// What the database must contain before the switch starts.
fn configure(case: &Case, site: &Site) -> Result<()> {
    let polling = format!("other_config:pmd-cpu-mask={:#x}", 1u64 << site.switch_core);
    let others = format!("other_config:dpdk-lcore-mask={:#x}", 1u64 << site.generator_core);
    let trains = format!("other_config:userspace-tso-enable={}", case.load == Load::Train);
    let set = [
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        "other_config:dpdk-init=true",
        "other_config:dpdk-socket-mem=1024",
        "other_config:dpdk-extra=\"--in-memory --single-file-segments --no-pci --no-telemetry\"",
        &polling,
        &others,
        &trains,
    ];
    vsctl(site, &set)
}

fn add_ports(case: &Case, site: &Site) -> Result<()> {
    vsctl(site, &["add-br", "bridge", "--", "set", "bridge", "bridge", "datapath_type=netdev"])?;
    for vnic in VNICS {
        let path = format!("options:vhost-server-path={}", site.socket(vnic).display());
        let mut set = vec!["add-port", "bridge", vnic, "--", "set", "Interface", vnic];
        set.extend(["type=dpdkvhostuserclient", &path]);
        if case.jumbo() {
            set.push("mtu_request=9000");
        }
        vsctl(site, &set)?;
    }
    add_uplink(site)
}

/// DPDK's af_packet device has a ring as long as Millrace's, instead of its own 512 frames.
fn add_uplink(site: &Site) -> Result<()> {
    let device = format!("options:dpdk-devargs=net_af_packet0,iface={UPLINK},framecnt=4096");
    let kind = match site.uplink.map(|uplink| uplink.driver) {
        Some(Driver::Packet) => ["type=dpdk", &device],
        Some(Driver::Xdp) => ["type=afxdp", "options:xdp-mode=native"],
        None => return Ok(()),
    };
    let set = ["add-port", "bridge", UPLINK, "--", "set", "Interface", UPLINK];
    vsctl(site, &[&set[..], &kind[..]].concat())
}
