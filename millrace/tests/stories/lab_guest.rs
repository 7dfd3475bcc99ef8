//! Measuring toward a virtual machine: an agent inside it, another behind the uplink, and the
//! switch between them.
//!
//! ```text
//! far [10.9.0.1] veth uplink ── millrace ── vhost-user [10.9.0.2] machine
//!                                  └─────── host0 [10.9.0.3] here, from where the agents are asked
//! ```
//!
//! The machine is emulated. The story checks that the report is complete and no byte is missing,
//! not that RSC pays.

use crate::guest::{Guest, directory};
use crate::heard::Heard;
use crate::host::Host;
use crate::lab_hosts::{Agent, json};
use crate::qemu::Machine;
use crate::sandbox::{Need, run, story};
use crate::shell::Shell;
use crate::switch::{Switch, millrace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const NEEDS: [Need; 4] =
    [Need::Guest("qemu"), Need::Tap, Need::Program("ethtool"), Need::Program("strip")];

const PORTS: &str = "\
[[port]]
name = 'uplink'
packet = 'uplink'
[[port]]
name = 'vm'
vhost-user = '/run/vm.sock'
mac = '52:54:00:00:00:01'
[[port]]
name = 'host'
tap = 'host0'
";

const TOKEN: &str = "a-token-of-the-story";

#[test]
fn rsc_toward_a_machine_is_validated_and_every_byte_accounted_for() {
    story(&NEEDS, || {
        let far = Host::new("far");
        run("ip link add uplink type veth peer name veth netns far");
        run("ip link set uplink up");
        far.assign_addresses("veth", 1);
        far.run("ethtool -K veth tso off gso off");
        let switch = Switch::start(PORTS);
        run("ip address add 10.9.0.3/24 dev host0");
        run("ip link set host0 up");
        let mut machine = Machine::boot_with("vm", &["vm"], &world_with_millrace());
        machine.guest.assign_addresses("eth0", 2);
        for port in ["uplink", "vm", "host"] {
            switch.wait_for(port, "up");
        }
        start_agent(&mut machine.guest);
        let sender = Agent::start(far, "10.9.0.1:5900");
        let receiver = format!("{TOKEN}@10.9.0.2:5900");
        let mut validate = millrace();
        validate.args(["validate", "rsc", "--sender", &sender.name, "--receiver", &receiver]);
        validate.args(["--port", "vm", "--repetitions", "2", "--seconds", "0.5", "--json"]);
        let output = validate.current_dir("/run").heard();
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{:#}", report["checks"]);
        whole(&report);
        machine.guest.run("until grep 'experiment is over' /tmp/agent; do sleep 0.1; done");
    });
}

/// Checks every arm, every byte, and the roles of the hosts.
fn whole(report: &Value) {
    for arm in ["on", "off"] {
        for figure in
            ["throughput_bps", "cpu_percent", "receiver_cpu_s_per_s", "segments_per_train"]
        {
            let median = &report["cases"][0]["arms"][arm][figure]["median"];
            assert!(median.as_f64() > Some(0.0), "{arm} {figure}: {median}");
        }
        let trips = &report["latency"][0]["arms"][arm]["round_trips"]["median"];
        assert!(trips.as_f64() > Some(0.0), "{arm}: {trips}");
    }
    assert!(report["cases"][0]["account"]["received_bytes"].as_u64() > Some(1 << 20));
    assert_eq!(
        report["cases"][0]["account"]["sent_bytes"],
        report["cases"][0]["account"]["received_bytes"]
    );
    let hosts = &report["bench"]["hosts"];
    assert_eq!(
        (&hosts[0]["same_machine"], &hosts[1]["same_machine"]),
        (&true.into(), &false.into())
    );
}

/// Returns the machines' initramfs with this binary in it.
fn world_with_millrace() -> PathBuf {
    let mut overlay = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/overlay"));
    let guests = directory("qemu").canonicalize().unwrap();
    overlay.arg(millrace().get_program()).env("MILLRACE_GUESTS", guests.parent().unwrap());
    let packed = overlay.heard();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let mut world = std::fs::read(guests.join("initramfs")).unwrap();
    world.extend(packed.stdout);
    let path = Path::new("/run/world").to_owned();
    std::fs::write(&path, world).unwrap();
    path
}

fn start_agent(guest: &mut Guest) {
    guest.run(&format!(
        "MILLRACE_LAB_TOKEN={TOKEN} millrace lab agent --listen 10.9.0.2:5900 >/tmp/agent 2>&1 &"
    ));
    guest.run("until grep Listening /tmp/agent; do sleep 0.1; done");
}
