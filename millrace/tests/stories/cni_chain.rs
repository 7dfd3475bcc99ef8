//! The CNI project's runtime and plugins: chains behind ours, and its IPAM plugins.

use crate::dhcp_server;
use crate::heard::Heard;
use crate::host::Host;
use crate::runtime::{Runtime, plugin_folder};
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::Switch;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};
use waiting::until;

/// Directory in which `cargo xtask setup test` puts programs of the CNI project.
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/cni");

macro_rules! need {
    ($name:literal) => {
        Need::Brought(concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/cni/", $name), $name)
    };
}

/// The runtime, with networks in `/run/net.d`.
struct Tool(Runtime);

impl Tool {
    fn new() -> Tool {
        let runtime = Runtime::new();
        // cnitool keeps results there, and host-local its addresses.
        run("mount -t tmpfs tmpfs /var/lib");
        std::fs::create_dir("/run/net.d").unwrap();
        Tool(runtime)
    }

    /// Writes a network whose first plugin is ours, with these keys, before others.
    fn network(&self, version: &str, name: &str, ours: &Value, others: &[Value]) {
        let mut plugin = json!({"type": "millrace-cni", "mtu": 1400});
        plugin.as_object_mut().unwrap().extend(ours.as_object().unwrap().clone());
        let plugins: Vec<_> = std::iter::once(plugin).chain(others.iter().cloned()).collect();
        let list = json!({"cniVersion": version, "name": name, "plugins": plugins});
        std::fs::write(format!("/run/net.d/{name}.conflist"), list.to_string()).unwrap();
    }

    fn command(&self, verb: &str, network: &str, pod: &str) -> Command {
        let _ = &self.0;
        let mut command = Command::new(format!("{FOLDER}/cnitool"));
        let path = format!("{}:{}", plugin_folder(), Path::new(FOLDER).display());
        command.args([verb, network, &format!("/run/netns/{pod}")]);
        command.env("CNI_PATH", path).env("NETCONFPATH", "/run/net.d");
        command
    }

    fn done(&self, verb: &str, network: &str, pod: &str) -> String {
        output_of(&mut self.command(verb, network, pod))
    }

    fn heard(&self, verb: &str, network: &str, pod: &str) -> Output {
        self.command(verb, network, pod).heard()
    }
}

fn host_local() -> Value {
    let ranges = json!([[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]]);
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    json!({"type": "host-local", "ranges": ranges, "routes": routes})
}

#[test]
fn what_tuning_and_sbr_change_passes_check() {
    story(
        &[Need::Tap, need!("cnitool"), need!("host-local"), need!("tuning"), need!("sbr")],
        || {
            let pods = [Host::new("one"), Host::new("two")];
            let (switch, tool) = (Switch::start(""), Tool::new());
            // The guard holds a pod to the address that the plugin gave it.
            let ours = json!({"ipam": host_local(), "port": {"mac-spoofing": "allow"}});
            let tuned = json!({"type": "tuning", "mac": "02:11:22:33:44:55", "mtu": 1300,
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}});
            for version in ["0.4.0", "1.0.0", "1.1.0"] {
                tool.network(version, "plain", &ours, &[]);
                tool.network(version, "tuned", &ours, std::slice::from_ref(&tuned));
                tool.network(version, "sourced", &ours, &[json!({"type": "sbr"})]);
                tool.done("add", "plain", "one");
                for network in ["tuned", "sourced"] {
                    let result: Value =
                        serde_json::from_str(&tool.done("add", network, "two")).unwrap();
                    tool.done("check", network, "two");
                    let address = result["ips"][0]["address"].as_str().unwrap();
                    let (to, _) = address.split_once('/').unwrap();
                    pods[0].run(&format!("ping -c 1 -W 5 {to}"));
                    tool.done("del", network, "two");
                    tool.done("del", network, "two");
                }
                tool.done("del", "plain", "one");
                assert_eq!(switch.ask("port list"), json!([]), "{version}");
            }
        },
    );
}

#[test]
fn dhcp_gets_a_lease_by_the_new_interface_and_releases_it() {
    story(&[Need::Tap, need!("cnitool"), need!("dhcp")], || {
        let pod = Host::new("one");
        let server = Host::new("server");
        let (switch, tool) = (Switch::start(""), Tool::new());
        switch.tell("port add server --tap eth0 --netns server --wait up");
        server.assign_addresses("eth0", 1);
        let (own, lease) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 50));
        dhcp_server::start(server, own, lease);
        // The client asks for a lease by broadcast, and releases it toward the server alone. The
        // server's kernel does not take that: the client has no address any more to send it from.
        switch.tell("acl add server allow out udp to 10.9.0.1 port 67");
        let released = || switch.ask("acl show server")["rules"][0]["hits"].as_u64().unwrap() > 0;
        let mut daemon = Command::new(format!("{FOLDER}/dhcp"));
        daemon.args(["daemon", "-socketpath", "/run/dhcp.sock"]);
        let mut daemon = daemon.spawn().unwrap();
        until("the plugin's daemon listens", || Path::new("/run/dhcp.sock").exists());
        let ipam = json!({"type": "dhcp", "daemonSocketPath": "/run/dhcp.sock"});
        tool.network("1.0.0", "leased", &json!({"ipam": ipam}), &[]);
        let result: Value = serde_json::from_str(&tool.done("add", "leased", "one")).unwrap();
        assert_eq!(result["ips"][0]["address"], "10.9.0.50/24");
        tool.done("check", "leased", "one");
        pod.run("ping -c 1 -W 5 10.9.0.1");
        assert!(!released());
        tool.done("del", "leased", "one");
        until("the lease is released", released);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    });
}

/// The plugin `bandwidth` shapes the host's end of a veth, which a TAP port has not.
#[test]
fn bandwidth_is_a_capability_of_ours_and_not_a_chained_plugin() {
    story(&[Need::Tap, need!("cnitool"), need!("host-local"), need!("bandwidth")], || {
        Host::new("one");
        let (switch, tool) = (Switch::start(""), Tool::new());
        let ours = json!({"ipam": host_local(), "capabilities": {"bandwidth": true}});
        tool.network("1.0.0", "limited", &ours, &[]);
        let arguments = json!({"bandwidth": {"egressRate": 8_000_000, "egressBurst": 800_000}});
        let mut add = tool.command("add", "limited", "one");
        output_of(add.env("CAP_ARGS", arguments.to_string()));
        let port = switch.ask("port list")[0]["config"].clone();
        assert_eq!((&port["rate"], &port["burst"]), (&json!("8Mbit"), &json!("100kB")), "{port}");
        tool.done("del", "limited", "one");
        let shaped = json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000});
        tool.network("1.0.0", "chained", &json!({"ipam": host_local()}), &[shaped]);
        assert!(!tool.heard("add", "chained", "one").status.success());
        tool.done("del", "chained", "one");
        assert_eq!(switch.ask("port list"), json!([]));
    });
}

#[test]
fn portmap_makes_a_port_of_the_host_a_pod_s() {
    let needs =
        [Need::Tap, Need::Program("nft"), need!("cnitool"), need!("host-local"), need!("portmap")];
    story(&needs, || {
        let pod = Host::new("one");
        let (switch, tool) = (Switch::start(""), Tool::new());
        // The host reaches its pods by a port of its own.
        switch.tell("port add host --tap host0 --wait up");
        run("ip address add 10.9.0.1/24 dev host0");
        run("ip link set host0 up");
        let mapped = json!({"type": "portmap", "snat": true, "backend": "nftables",
            "capabilities": {"portMappings": true}});
        tool.network("1.0.0", "mapped", &json!({"ipam": host_local()}), &[mapped]);
        let arguments =
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
        let mut add = tool.command("add", "mapped", "one");
        output_of(add.env("CAP_ARGS", arguments.to_string()));
        let listener = pod.within(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
        let _stream = std::net::TcpStream::connect("10.9.0.1:8080").unwrap();
        listener.accept().unwrap();
        let mut del = tool.command("del", "mapped", "one");
        output_of(del.env("CAP_ARGS", arguments.to_string()));
    });
}
