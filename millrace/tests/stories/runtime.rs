//! A container runtime for stories: it runs the plugin as the specification says, with an IPAM
//! plugin of the story.

use crate::heard::Heard;
use crate::switch::millrace;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

const PLUGINS: &str = "/run/plugins";
/// Directory with a file for each assigned address, named by its number, with the container's id.
const ADDRESSES: &str = "/run/addresses";
/// File with what the IPAM plugin does when it is asked for an address.
const MOOD: &str = "/run/ipam.mood";

/// The IPAM plugin: assigns 10.9.0.N and fd09::N. Like host-local it refuses a container that has
/// addresses.
const IPAM: &str = r#"#!/bin/sh
set -eu
network=$(cat)
cd /run/addresses
# What the plugin finds of the interface, while it could ask a server by it.
nsenter --net="$CNI_NETNS" ip -brief link show "$CNI_IFNAME" >/run/ipam.$CNI_COMMAND 2>&1 || true
own() { grep -lx "$CNI_CONTAINERID" * 2>/dev/null || true; }
case $CNI_COMMAND in
ADD)
    if [ -n "$(own)" ] || [ "$(cat /run/ipam.mood)" = refuses ]; then
        echo '{"code": 104, "msg": "no address", "details": "it has one"}'
        exit 1
    fi
    n=1
    while [ -e $n ]; do n=$((n + 1)); done
    echo "$CNI_CONTAINERID" >$n
    [ "$(cat /run/ipam.mood)" != kills ] || kill -9 $PPID
    if [ "$(cat /run/ipam.mood)" = astray ]; then
        echo '{"ips": [{"address": "10.9.0.'$n'/24"}], "routes": [{"dst": "10.77.0.0/16", "gw": "10.66.0.1"}]}'
        exit 0
    fi
    echo '{"cniVersion": "1.1.0", "routes": [{"dst": "10.77.0.0/16"}], "ips": ['
    echo '{"address": "10.9.0.'$n'/24", "gateway": "10.9.0.254"}, {"address": "fd09::'$n'/64"}]}'
    ;;
DEL) rm -f $(own) ;;
CHECK) [ -n "$(own)" ] ;;
STATUS) [ "$(cat /run/ipam.mood)" != refuses ] ;;
GC)
    [ "$(cat /run/ipam.mood)" != refuses ] || exit 1
    for file in *; do
        [ ! -e "$file" ] || echo "$network" | grep -q "\"containerID\":\"$(cat "$file")\"" || rm "$file"
    done
    ;;
esac
"#;

/// What the IPAM plugin does when it is asked for an address.
pub(crate) enum Ipam {
    /// Assigns an address.
    Works,
    /// Refuses, as it does STATUS and GC.
    Refuses,
    /// Reserves an address and kills the plugin that asked.
    KillsPlugin,
    /// Reserves an address and names a route by a gateway that is not reachable.
    Astray,
}

/// Returns the directory of the plugins.
pub(crate) fn plugin_folder() -> &'static str {
    PLUGINS
}

/// The runtime.
pub(crate) struct Runtime;

impl Runtime {
    /// Installs the plugins.
    pub(crate) fn new() -> Runtime {
        fs::create_dir(PLUGINS).unwrap();
        fs::create_dir(ADDRESSES).unwrap();
        let program = fs::canonicalize(millrace().get_program()).unwrap();
        symlink(program, format!("{PLUGINS}/millrace-cni")).unwrap();
        let ipam = format!("{PLUGINS}/story-ipam");
        fs::write(&ipam, IPAM).unwrap();
        fs::set_permissions(&ipam, fs::Permissions::from_mode(0o755)).unwrap();
        let runtime = Runtime;
        runtime.ipam(Ipam::Works);
        runtime
    }

    /// Makes the IPAM plugin do this from now on.
    pub(crate) fn ipam(&self, mood: Ipam) {
        let word = match mood {
            Ipam::Works => "works",
            Ipam::Refuses => "refuses",
            Ipam::KillsPlugin => "kills",
            Ipam::Astray => "astray",
        };
        fs::write(MOOD, word).unwrap();
    }

    /// Returns what the IPAM plugin saw of the interface when it was last asked to do `verb`: its
    /// name, state, MAC address and flags.
    pub(crate) fn seen_by_ipam(&self, verb: &str) -> String {
        fs::read_to_string(format!("/run/ipam.{verb}")).unwrap()
    }

    /// Returns the numbers of the assigned addresses.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let files = fs::read_dir(ADDRESSES).unwrap();
        let mut names: Vec<_> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs a command for `eth0` of a pod, which must succeed. Returns its result. `changes` are
    /// keys of the network.
    pub(crate) fn done(&self, verb: &str, pod: &str, changes: &Value) -> Value {
        self.done_at(verb, pod, "eth0", changes)
    }

    /// Runs a command for an interface of a pod, which must succeed. Returns its result.
    pub(crate) fn done_at(&self, verb: &str, pod: &str, name: &str, changes: &Value) -> Value {
        let (is_ok, said) = self.call_at(verb, pod, name, changes);
        assert!(is_ok, "{verb} {pod} {changes}: {said}");
        said
    }

    /// Runs a command that must fail. Returns its error.
    pub(crate) fn refused(&self, verb: &str, pod: &str, changes: &Value) -> Value {
        let (is_ok, said) = self.call(verb, pod, changes);
        assert!(!is_ok && said["code"].is_u64(), "{verb} {pod} {changes}: {said}");
        said
    }

    /// Runs a command. Returns whether it succeeded, and what it printed.
    pub(crate) fn call(&self, verb: &str, pod: &str, changes: &Value) -> (bool, Value) {
        self.call_at(verb, pod, "eth0", changes)
    }

    fn call_at(&self, verb: &str, pod: &str, name: &str, changes: &Value) -> (bool, Value) {
        let mut network = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "millrace-cni", "mtu": 1400,
            "ipam": {"type": "story-ipam"},
        });
        let changes = changes.as_object().unwrap().clone();
        network.as_object_mut().unwrap().extend(changes);
        let mut command = Command::new(format!("{PLUGINS}/millrace-cni"));
        command.env_remove("MILLRACE_SOCKET").env("CNI_PATH", PLUGINS).env("CNI_COMMAND", verb);
        command.env("CNI_CONTAINERID", pod).env("CNI_NETNS", format!("/run/netns/{pod}"));
        command.env("CNI_IFNAME", name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(network.to_string().as_bytes()).unwrap();
        let output = child.heard();
        (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}
