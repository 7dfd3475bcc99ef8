//! Pods of a container runtime: what it does with the plugin, by the specification, and what
//! remains after crashes.

use crate::heard::Heard;
use crate::host::Host;
use crate::runtime::{Ipam, Runtime, plugin_folder};
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::Switch;
use crate::transfer::transfer;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use waiting::until;

/// Path at which `cargo xtask setup test` puts programs of the CNI project.
const CNITOOL: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/cni/cnitool");

/// Far more bytes than a pod's traffic needs to show a fault.
const BYTES: usize = 16 << 20;

fn names(switch: &Switch) -> Vec<String> {
    let ports = switch.ask("port list");
    let name = |port: &Value| port["name"].as_str().unwrap().to_owned();
    ports.as_array().unwrap().iter().map(name).collect()
}

fn devices(pod: Host) -> String {
    pod.run("ip -brief link show")
}

#[test]
fn two_pods_are_attached_talk_and_go() {
    story(&[Need::Tap], || two_pods(&json!({}), "tap"));
}

#[test]
fn two_pods_with_veth_pairs_are_attached_talk_and_go() {
    story(&[], || {
        two_pods(&json!({"device": "veth"}), "veth");
        assert!(!output_of(Command::new("ip").args(["link", "show"])).contains("millrace port"));
    });
}

/// Attaches and detaches two pods of a network with these keys; their interfaces are of this kind.
fn two_pods(keys: &Value, kind: &str) {
    let pods = [Host::new("one"), Host::new("two")];
    let (switch, runtime) = (Switch::start(""), Runtime::new());
    let mut results = Vec::new();
    for (pod, number) in ["one", "two"].iter().zip(1..) {
        let result = runtime.done("ADD", pod, keys);
        let interface = &result["interfaces"][0];
        assert_eq!((&interface["name"], &interface["mtu"]), (&json!("eth0"), &json!(1400)));
        assert_eq!(interface["sandbox"], format!("/run/netns/{pod}"));
        let ips = [format!("10.9.0.{number}/24"), format!("fd09::{number}/64")];
        let told = [&result["ips"][0]["address"], &result["ips"][1]["address"]];
        assert_eq!(told, [&json!(ips[0]), &json!(ips[1])]);
        results.push(result);
    }
    for (pod, result) in ["one", "two"].iter().zip(&results) {
        runtime.done("CHECK", pod, &with(keys, result));
    }
    for to in ["10.9.0.2", "fd09::2"] {
        transfer((pods[0], pods[1], to.parse::<IpAddr>().unwrap()), BYTES);
    }
    let routes = pods[0].run("ip route show");
    assert!(routes.contains("10.77.0.0/16 via 10.9.0.254 dev eth0"), "{routes}");
    // A repeated ADD is refused, and nothing is torn down.
    let before = devices(pods[0]);
    let refused = runtime.refused("ADD", "one", keys);
    let told = refused["msg"].as_str().unwrap();
    assert!(refused["code"] == 4 && told.contains("CNI_IFNAME"), "{refused}");
    assert_eq!((names(&switch).len(), devices(pods[0])), (2, before));
    let port = switch.ask("port list")[0]["device"].as_str().unwrap().to_owned();
    assert_eq!(port, format!("{kind} eth0"));
    runtime.done("CHECK", "one", &with(keys, &results[0]));
    for pod in ["one", "two", "two"] {
        runtime.done("DEL", pod, keys);
    }
    assert!(names(&switch).is_empty() && runtime.addresses().is_empty());
    assert!(!pods.iter().any(|pod| devices(*pod).contains("eth0")), "a device is left behind");
}

fn with(keys: &Value, result: &Value) -> Value {
    let mut keys = keys.clone();
    keys["prevResult"] = result.clone();
    keys
}

/// The plugin is killed after the port is made and the address reserved.
#[test]
fn what_a_crash_leaves_is_removed_by_each_of_del_and_gc() {
    story(&[Need::Tap], || {
        let pod = Host::new("one");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        for remedy in ["DEL", "GC"] {
            runtime.ipam(Ipam::KillsPlugin);
            let (is_ok, said) = runtime.call("ADD", "one", &json!({}));
            assert!(!is_ok && said.is_null(), "killed: {said}");
            assert_eq!((names(&switch).len(), runtime.addresses().len()), (1, 1));
            runtime.ipam(Ipam::Works);
            // An interface that exists is not changed, whatever made it.
            assert_eq!(runtime.refused("ADD", "one", &json!({}))["code"], 4);
            runtime.done(remedy, "one", &json!({"cni.dev/valid-attachments": []}));
            assert_eq!((names(&switch).len(), runtime.addresses().len()), (0, 0), "{remedy}");
            assert!(!devices(pod).contains("eth0"), "{remedy}");
        }
    });
}

/// A runtime that lost its state adds the pod anew, in a new namespace of the same name.
#[test]
fn a_port_whose_namespace_is_gone_is_replaced() {
    story(&[Need::Tap], || {
        Host::new("one");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        runtime.done("ADD", "one", &json!({}));
        run("ip netns delete one");
        let pod = Host::new("one");
        let result = runtime.done("ADD", "one", &json!({}));
        assert_eq!(result["ips"][0]["address"], "10.9.0.1/24", "the old one was released");
        assert_eq!((names(&switch).len(), runtime.addresses().len()), (1, 1));
        assert!(devices(pod).contains("eth0"));
        runtime.done("CHECK", "one", &json!({"prevResult": result}));
    });
}

/// The traffic of an address that another pod had before was lost for 25 s.
#[test]
fn neighbours_learn_at_once_where_an_address_is_now() {
    story(&[Need::Tap], || {
        let pods = [Host::new("one"), Host::new("two")];
        let gateway = Host::new("gateway");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        switch.tell("port add gateway --tap eth0 --netns gateway --wait up");
        gateway.assign_addresses("eth0", 254);
        let mac = |pod: Host| {
            devices(pod)
                .lines()
                .find(|line| line.contains("eth0"))
                .unwrap()
                .split_whitespace()
                .nth(2)
                .unwrap()
                .to_owned()
        };
        let known = |address: &str| gateway.run(&format!("ip neigh show {address}"));
        runtime.done("ADD", "one", &json!({}));
        let first = mac(pods[0]);
        for address in ["10.9.0.1", "fd09::1"] {
            gateway.run(&format!("ping -c 1 -W 5 {address}"));
            assert!(known(address).contains(&first), "{}", known(address));
        }
        runtime.done("DEL", "one", &json!({}));
        let result = runtime.done("ADD", "two", &json!({}));
        assert_eq!(result["ips"][0]["address"], "10.9.0.1/24", "another address");
        let second = mac(pods[1]);
        // Nothing is sent by the gateway meanwhile.
        for address in ["10.9.0.1", "fd09::1"] {
            until(&format!("{address} is known at {second}"), || known(address).contains(&second));
        }
    });
}

/// A plugin such as dhcp asks and releases by the interface itself.
#[test]
fn the_interface_is_up_before_ipam_is_asked_and_until_it_has_released() {
    story(&[Need::Tap], || {
        Host::new("one");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        let result = runtime.done("ADD", "one", &json!({}));
        runtime.done("DEL", "one", &json!({}));
        let mac = result["interfaces"][0]["mac"].as_str().unwrap();
        for verb in ["ADD", "DEL"] {
            let seen = runtime.seen_by_ipam(verb);
            assert!(seen.contains(mac) && seen.contains("UP"), "{verb}: {seen}");
        }
        // A plugin that fails is told to forget, and what fails afterwards is undone in reverse.
        std::fs::remove_file("/run/ipam.DEL").unwrap();
        runtime.ipam(Ipam::Refuses);
        runtime.refused("ADD", "one", &json!({}));
        assert!(runtime.seen_by_ipam("DEL").contains(mac));
        runtime.ipam(Ipam::Astray);
        let refused = runtime.refused("ADD", "one", &json!({}));
        assert!(
            refused["code"] == 101 && refused.to_string().contains("10.77.0.0/16"),
            "{refused}"
        );
        assert!(runtime.seen_by_ipam("DEL").contains(mac), "released after the device was gone");
        assert_eq!((names(&switch).len(), runtime.addresses().len()), (0, 0));
    });
}

#[test]
fn pods_are_attached_and_detached_side_by_side() {
    story(&[Need::Tap], || {
        let pods = ["p1", "p2", "p3", "p4", "p5", "p6"];
        for pod in pods {
            Host::new(pod);
        }
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        for (verb, left) in [("ADD", pods.len()), ("DEL", 0)] {
            std::thread::scope(|scope| {
                for pod in pods {
                    let runtime = &runtime;
                    scope.spawn(move || runtime.done(verb, pod, &json!({"ipam": {}})));
                }
            });
            assert_eq!(names(&switch).len(), left, "{verb}");
        }
    });
}

/// A second network with a default route, or an IPAM plugin that names the connected network.
#[test]
fn a_route_that_exists_stays_and_is_not_in_the_result() {
    story(&[Need::Tap], || {
        let pod = Host::new("one");
        let (_switch, runtime) = (Switch::start(""), Runtime::new());
        pod.run("ip route add unreachable 10.77.0.0/16");
        let result = runtime.done("ADD", "one", &json!({}));
        assert_eq!(result.get("routes"), None, "{result}");
        let routes = pod.run("ip route show 10.77.0.0/16");
        assert_eq!(routes.trim(), "unreachable 10.77.0.0/16");
        runtime.done("CHECK", "one", &json!({"prevResult": result}));
    });
}

#[test]
fn name_servers_and_bandwidth_of_the_network_are_respected() {
    story(&[Need::Tap], || {
        Host::new("one");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        let dns = json!({"nameservers": ["10.9.0.53"], "search": ["a.example"]});
        let bandwidth =
            json!({"bandwidth": {"egressRate": 8_000_000, "egressBurst": 2_147_483_647}});
        let network = json!({"dns": dns, "runtimeConfig": bandwidth, "port": {"rate": "1Gbit"}});
        let result = runtime.done("ADD", "one", &network);
        assert_eq!(result["dns"], dns);
        let port = switch.ask("port list")[0].clone();
        assert_eq!(port["config"]["rate"], "8Mbit", "{port}");
        // CHECK finds that the limit is gone.
        let network = json!({"prevResult": result, "runtimeConfig": bandwidth});
        runtime.done("CHECK", "one", &network);
        switch.tell(&format!("port set {} rate=", port["name"].as_str().unwrap()));
        assert_eq!(runtime.refused("CHECK", "one", &network)["code"], 102);
    });
}

#[test]
fn garbage_is_what_is_not_listed_and_other_networks_are_left_alone() {
    story(&[Need::Tap], || {
        let pods = [Host::new("one"), Host::new("two")];
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        switch.tell("port add mine --tap tap1");
        for pod in ["one", "two"] {
            runtime.done("ADD", pod, &json!({}));
        }
        let other = json!({"name": "others", "ipam": {}});
        runtime.done_at("ADD", "two", "net1", &other);
        let refused = runtime.refused("GC", "one", &json!({}));
        assert_eq!((refused["code"].as_u64(), names(&switch).len()), (Some(7), 4), "{refused}");
        let valid = json!([{"containerID": "two", "ifname": "eth0"}]);
        // An error of the IPAM plugin does not keep the port.
        runtime.ipam(Ipam::Refuses);
        let refused = runtime.refused("GC", "one", &json!({"cni.dev/valid-attachments": &valid}));
        assert_eq!((refused["code"].as_u64(), names(&switch).len()), (Some(103), 3), "{refused}");
        runtime.ipam(Ipam::Works);
        runtime.done("GC", "one", &json!({"cni.dev/valid-attachments": valid}));
        assert!(!devices(pods[0]).contains("eth0") && devices(pods[1]).contains("eth0"));
        assert!(devices(pods[1]).contains("net1"), "another network's");
        assert_eq!((names(&switch).len(), runtime.addresses()), (3, vec!["2".to_owned()]));
        // A pod that is gone together with its namespace.
        run("ip netns delete two");
        runtime.done("DEL", "two", &json!({}));
        runtime.done_at("DEL", "two", "net1", &other);
        assert_eq!(names(&switch), ["mine"]);
    });
}

#[test]
fn what_goes_wrong_is_told_in_the_words_of_the_specification_and_leaves_nothing() {
    story(&[Need::Tap], || {
        let pod = Host::new("one");
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        let code = |verb: &str, changes: Value| {
            let refused = runtime.refused(verb, "one", &changes);
            assert_eq!(
                refused["cniVersion"],
                changes.get("cniVersion").unwrap_or(&json!("1.1.0")).clone()
            );
            let left =
                (names(&switch).len(), runtime.addresses().len(), devices(pod).contains("eth0"));
            assert_eq!(left, (0, 0, false), "{verb} {changes}: {refused}");
            refused["code"].as_u64().unwrap()
        };
        assert_eq!(code("ADD", json!({"cniVersion": "0.2.0"})), 1);
        assert_eq!(code("ADD", json!({"ipam": {"type": "../sh"}})), 7);
        assert_eq!(code("ADD", json!({"ipam": {"type": "nosuch"}})), 103);
        assert_eq!(code("ADD", json!({"port": {"mtuu": 9000}})), 7);
        assert_eq!(code("ADD", json!({"port": {"vlan": 10, "trunk": "10,20"}})), 100);
        assert_eq!(code("STATUS", json!({"cniVersion": "1.0.0"})), 1);
        runtime.ipam(Ipam::Refuses);
        assert_eq!(code("ADD", json!({})), 104);
        runtime.ipam(Ipam::Works);
        // An interface that is not the plugin's is left alone.
        pod.run("ip link add eth0 type veth peer name other");
        assert_eq!(runtime.refused("ADD", "one", &json!({}))["code"], 4);
        pod.run("ip link delete eth0");
        // The plugin finds what was changed without it.
        let result = runtime.done("ADD", "one", &json!({}));
        let before = json!({"prevResult": result});
        // Not what a later plugin changed, and noted if the result has it.
        pod.run("ip link set eth0 mtu 1300 address 02:11:22:33:44:55");
        assert_eq!(runtime.refused("CHECK", "one", &before)["code"], 102);
        let mut noted = before.clone();
        noted["prevResult"]["interfaces"][0]["mac"] = json!("02:11:22:33:44:55");
        runtime.done("CHECK", "one", &noted);
        let mac = result["interfaces"][0]["mac"].as_str().unwrap();
        pod.run(&format!("ip link set eth0 mtu 1400 address {mac}"));
        pod.run("ip address delete 10.9.0.1/24 dev eth0");
        let refused = runtime.refused("CHECK", "one", &before);
        assert!(
            refused["code"] == 102 && refused["msg"].as_str().unwrap().contains("addresses"),
            "{refused}"
        );
        // The IPAM plugin's account is asked, and a result is needed.
        pod.run("ip address add 10.9.0.1/24 dev eth0");
        pod.run("ip route replace 10.77.0.0/16 via 10.9.0.254 dev eth0");
        runtime.done("CHECK", "one", &before);
        std::fs::remove_file("/run/addresses/1").unwrap();
        assert_eq!(runtime.refused("CHECK", "one", &before)["code"], 103);
        assert_eq!(runtime.refused("CHECK", "one", &json!({}))["code"], 7);
        runtime.done("STATUS", "one", &json!({}));
        runtime.ipam(Ipam::Refuses);
        assert_eq!(runtime.refused("STATUS", "one", &json!({}))["code"], 103);
        let versions = runtime.done("VERSION", "one", &json!({}));
        assert_eq!(versions["supportedVersions"].as_array().map(Vec::len), Some(5));
        switch.end(Signal::TERM);
        assert_eq!(runtime.refused("STATUS", "one", &json!({}))["code"], 51);
        assert_eq!(runtime.refused("DEL", "one", &json!({}))["code"], 11);
    });
}

/// A pod's author asks for the gateway's address, or for that of another pod.
#[test]
fn an_address_that_a_station_sends_from_is_given_to_no_pod() {
    story(&[Need::Tap], || {
        let hosts = ["one", "two", "gateway"].map(Host::new);
        let (switch, runtime) = (Switch::start(""), Runtime::new());
        run("ip link add wan0 type veth peer name lan0");
        run("ip link set lan0 netns gateway");
        run("ip link set wan0 up");
        hosts[2].assign_addresses("lan0", 254);
        switch.tell("port add uplink --packet wan0");
        runtime.done("ADD", "one", &json!({}));
        hosts[0].run("ping -c 1 -W 5 10.9.0.254");
        for (host, device) in [(hosts[2], "lan0"), (hosts[0], "eth0")] {
            let shown = host.run(&format!("ip -brief link show {device}"));
            let mac = shown.split_whitespace().nth(2).unwrap();
            let wanted = json!({"runtimeConfig": {"mac": mac}});
            let refused = runtime.refused("ADD", "two", &wanted);
            assert!(refused.to_string().contains("address"), "{device}: {refused}");
        }
        assert_eq!((names(&switch).len(), runtime.addresses().len()), (2, 1));
        runtime.done("ADD", "two", &json!({"runtimeConfig": {"mac": "02:00:00:00:00:77"}}));
    });
}

/// Uses the CNI project's own runtime and its host-local plugin.
#[test]
fn cnitool_attaches_checks_and_detaches() {
    story(&[Need::Tap, Need::Brought(CNITOOL, "cnitool")], || {
        let pods = [Host::new("one"), Host::new("two")];
        let (switch, _runtime) = (Switch::start(""), Runtime::new());
        // cnitool keeps results there.
        run("mount -t tmpfs tmpfs /var/lib");
        let path =
            format!("{}:{}", plugin_folder(), Path::new(CNITOOL).parent().unwrap().display());
        let command = |verb: &str, netns: &str| {
            let mut command = Command::new(CNITOOL);
            command
                .args([verb, "pods", netns])
                .env("CNI_PATH", &path)
                .env("NETCONFPATH", "/run/net.d");
            command
        };
        let tool = |verb: &str, netns: &str| output_of(&mut command(verb, netns));
        std::fs::create_dir("/run/net.d").unwrap();
        for version in ["0.4.0", "1.0.0", "1.1.0"] {
            let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]]});
            let plugin = json!({"type": "millrace-cni", "mtu": 1400, "ipam": ipam});
            let list = json!({"cniVersion": version, "name": "pods", "plugins": [plugin]});
            std::fs::write("/run/net.d/10-pods.conflist", list.to_string()).unwrap();
            let netns = ["/run/netns/one", "/run/netns/two"];
            let results = netns.map(|netns| tool("add", netns));
            let result: Value = serde_json::from_str(&results[1]).unwrap();
            assert_eq!(result["cniVersion"], version);
            let address = result["ips"][0]["address"].as_str().unwrap();
            let to: IpAddr = address.split_once('/').unwrap().0.parse().unwrap();
            netns.iter().for_each(|netns| drop(tool("check", netns)));
            transfer((pods[0], pods[1], to), BYTES);
            if version == "1.1.0" {
                tool("status", netns[0]);
                // cnitool gives GC no list of valid attachments. That is not an empty list.
                let output = command("gc", netns[0]).heard();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("valid-attachments is missing"), "{said}");
            }
            netns.iter().for_each(|netns| drop(tool("del", netns)));
            assert!(names(&switch).is_empty());
        }
    });
}
