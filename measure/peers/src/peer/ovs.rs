//! Open vSwitch with DPDK: one bridge that learns addresses (NORMAL), one polling thread, two
//! vhost-user ports, and an uplink if the case has one.
//!
//! The switch connects to the generator's sockets, which trains require and all other cases permit.
//! Its database is in the sample's directory, and its devices are in a network namespace of its
//! own, so an Open vSwitch of the host is not touched.

use super::{Driver, Running, Setup, UPLINK, VNICS, accept};
use crate::case::{Case, Load};
use crate::process::{Process, in_own_namespace, output};
use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// The build with DPDK; the one in PATH lacks it.
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

pub(super) fn start(case: &Case, setup: &Setup, stop: &Stop) -> Result<Running> {
    let [first, second] = VNICS.map(|vnic| UnixListener::bind(setup.socket(vnic)));
    let listeners = [first?, second?];
    let database = start_database(setup, stop)?;
    configure(case, setup)?;
    let mut command = setup.command(Path::new(SWITCH));
    command.arg(remote(setup)).arg(control(setup, "switch")).arg("--no-chdir");
    set_directories(&mut command, setup);
    let switch = Process::start("ovs-vswitchd", &mut command, &setup.directory)?;
    add_ports(case, setup).with_context(|| switch.log_tail())?;
    accept(vec![switch, database], &listeners, stop)
}

/// Sets all of Open vSwitch's directories to the sample's.
fn set_directories<'c>(command: &'c mut Command, setup: &Setup) -> &'c mut Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, &setup.directory);
    }
    command
}

fn remote(setup: &Setup) -> String {
    format!("unix:{}", setup.directory.join("db.sock").display())
}

fn control(setup: &Setup, name: &str) -> String {
    format!("--unixctl={}", setup.directory.join(name).with_extension("ctl").display())
}

fn start_database(setup: &Setup, stop: &Stop) -> Result<Process> {
    let file = setup.directory.join("conf.db");
    let mut create = Command::new("ovsdb-tool");
    output(set_directories(create.arg("create").arg(&file).arg(SCHEMA), setup))?;
    let mut command = in_own_namespace(Path::new(DATABASE));
    command.arg(&file).arg(format!("--remote=p{}", remote(setup))).arg(control(setup, "database"));
    let mut process =
        Process::start(DATABASE, set_directories(&mut command, setup), &setup.directory)?;
    let answers = stop.wait_for(super::START_TIMEOUT, || {
        process.check()?;
        Ok(vsctl(setup, &["--no-wait", "init"]).ok())
    })?;
    answers.with_context(|| format!("{DATABASE} does not answer: {}", process.log_tail()))?;
    Ok(process)
}

fn vsctl(setup: &Setup, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ovs-vsctl");
    command.arg(format!("--db={}", remote(setup))).arg("--timeout=20").args(arguments);
    output(set_directories(&mut command, setup)).map(drop)
}

/// Writes the settings that the database must contain before the switch starts.
fn configure(case: &Case, setup: &Setup) -> Result<()> {
    let polling = format!("other_config:pmd-cpu-mask={:#x}", 1u64 << setup.switch_core);
    let others = format!("other_config:dpdk-lcore-mask={:#x}", 1u64 << setup.generator_core);
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
    vsctl(setup, &set)
}

fn add_ports(case: &Case, setup: &Setup) -> Result<()> {
    vsctl(setup, &["add-br", "bridge", "--", "set", "bridge", "bridge", "datapath_type=netdev"])?;
    for vnic in VNICS {
        let path = format!("options:vhost-server-path={}", setup.socket(vnic).display());
        let mut set = vec!["add-port", "bridge", vnic, "--", "set", "Interface", vnic];
        set.extend(["type=dpdkvhostuserclient", &path]);
        if case.jumbo() {
            set.push("mtu_request=9000");
        }
        vsctl(setup, &set)?;
    }
    add_uplink(setup)
}

/// Adds the uplink, if there is one. DPDK's af_packet device gets a ring as long as Millrace's,
/// instead of its own 512 frames.
fn add_uplink(setup: &Setup) -> Result<()> {
    let device = format!("options:dpdk-devargs=net_af_packet0,iface={UPLINK},framecnt=4096");
    let kind = match setup.uplink.map(|uplink| uplink.driver) {
        Some(Driver::Packet) => ["type=dpdk", &device],
        Some(Driver::Xdp) => ["type=afxdp", "options:xdp-mode=native"],
        None => return Ok(()),
    };
    let set = ["add-port", "bridge", UPLINK, "--", "set", "Interface", UPLINK];
    vsctl(setup, &[&set[..], &kind[..]].concat())
}
