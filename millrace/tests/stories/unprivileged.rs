//! The daemon as the packaged unit runs it: an ordinary user with the unit's ambient capabilities,
//! in its bounding set. The stories check which documented features work, and which of them each
//! capability serves.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{FILE, SOCKET, Switch, cli, millrace};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::Command;

const NEEDS: [Need; 4] =
    [Need::Tap, Need::Program("setpriv"), Need::Program("ethtool"), Need::Root];
const UNIT: &str = include_str!("../../../packaging/millrace.service");
/// Path at which all users may run the binary.
const PROGRAM: &str = "/run/millrace.binary";
const STATE: &str = "/run/kept";
/// The daemon's user, and the owner of a guest's socket.
const DAEMON: u32 = 6001;
const OWNER: u32 = 6002;
/// One port for each feature that takes a privilege: its name, and its keys.
pub(crate) const PORTS: [(&str, &str); 8] = [
    ("tap", "tap = 'tap0'\nmtu = 1400\n"),
    ("netns", "tap = 'tap1'\nnetns = 'guest'\n"),
    ("veth", "veth = 'eth0'\nnetns = 'guest'\nmtu = 1400\n"),
    ("packet", "packet = 'eth1'\n"),
    ("steered", "packet = 'eth2'\nqueues = 2\nsteer = 'rss'\n"),
    ("xdp", "xdp = 'eth3'\n"),
    ("vhost", "vhost-user = '/run/millrace/vm.sock'\nsocket-group = 6003\n"),
    (
        "owned",
        "vhost-user = '/run/millrace/owned.sock'\nsocket-owner = 6002\nsocket-mode = '0600'\n",
    ),
];

/// Each capability, with the ports that report its absence. No other ports may.
const WITHOUT: [(&str, &[&str]); 6] = [
    ("net_admin", &["netns", "packet", "steered", "tap", "veth", "xdp"]),
    ("net_raw", &["packet", "steered", "veth", "xdp"]),
    ("sys_admin", &["netns", "packet", "steered", "veth"]),
    ("ipc_lock", &["xdp"]),
    ("bpf", &["xdp"]),
    ("chown", &["owned", "vhost"]),
];

fn capabilities() -> Vec<String> {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap();
    line.split(' ').map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase()).collect()
}

/// Returns the daemon's command, as another user that has these capabilities and can get no others.
fn command(capabilities: &[String]) -> Command {
    let list: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let list = format!("-all{list}");
    let mut command = Command::new("setpriv");
    let user = DAEMON.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"]);
    command.args(["--bounding-set", &list, "--inh-caps", &list, "--ambient-caps", &list, PROGRAM]);
    command.args(["run", "-c", FILE, "--socket", SOCKET, "--state-dir", STATE]);
    command.env("MILLRACE_LOG", "error").env_remove("MILLRACE_SOCKET");
    command
}

fn start(capabilities: &[String]) -> Switch {
    Switch::of(command(capabilities).spawn().unwrap())
}

fn lay_out(keys: &str) -> (Host, Host) {
    // The device file has the mode that udev gives it, whatever this host's own has: all users may
    // open it.
    run("mknod -m 666 /run/tun c 10 200");
    run("mount --bind /run/tun /dev/net/tun");
    std::fs::write(PROGRAM, "").unwrap();
    run(&format!("mount --bind {} {PROGRAM}", millrace().get_program().display()));
    for directory in ["/run/millrace", STATE] {
        std::fs::create_dir(directory).unwrap();
        chown(directory, Some(DAEMON), Some(DAEMON)).unwrap();
    }
    run(&format!("chmod 0700 {STATE}"));
    let (far, guest) = (Host::new("far"), Host::new("guest"));
    for uplink in 1..=3 {
        run(&format!("ip link add eth{uplink} type veth peer name far{uplink} netns far"));
        run(&format!("ip link set eth{uplink} up"));
        far.run(&format!("ip link set far{uplink} up"));
        // Otherwise an xdp port reports that it does not see these tags.
        far.run(&format!("ethtool -K far{uplink} txvlan off"));
        run(&format!("ethtool -K eth{uplink} rxvlan off"));
    }
    let ports = PORTS.iter().map(|(name, keys)| format!("[[port]]\nname = '{name}'\n{keys}"));
    let text = format!("[switch]\n{keys}{}", ports.collect::<String>());
    std::fs::write(FILE, text).unwrap();
    (far, guest)
}

/// Returns ports that are not open, and open ones with less than was asked for, each with the
/// reason.
pub(crate) fn lacking(ports: &Value) -> Vec<(String, String)> {
    let told = ports.as_array().unwrap().iter().filter_map(|port| {
        let word = |key: &str| port[key].as_str().unwrap_or_default().to_owned();
        let degraded = port["degraded"].as_array().filter(|reasons| !reasons.is_empty());
        match (word("state") == "broken", degraded) {
            (true, _) => Some((word("name"), word("reason"))),
            (false, Some(reasons)) => Some((word("name"), reasons[0].as_str()?.to_owned())),
            _ => None,
        }
    });
    told.collect()
}

#[test]
fn the_documented_features_work_without_root() {
    story(&NEEDS, || {
        let (far, guest) = lay_out("socket-group = 6004\n");
        let mut switch = start(&capabilities());
        assert_eq!(lacking(&switch.ask("port list")), []);
        assert_eq!(switch.ask("port show steered")["spread"]["by"], "tables");
        far.assign_addresses("far1", 1);
        guest.assign_addresses("tap1", 2);
        far.run("ping -c 3 -i 0.2 -w 20 10.9.0.2");
        let facts = |path: &str| std::fs::metadata(path).unwrap();
        assert_eq!(facts("/run/millrace/owned.sock").uid(), OWNER);
        assert_eq!(facts("/run/millrace/vm.sock").gid(), 6003);
        assert_eq!(facts(SOCKET).gid(), 6004);
        for line in ["port add kept --tap tap9", "rsc off tap", "port set tap mtu=1300"] {
            switch.tell(line);
        }
        let output = cli("capture netns -w /run/captured.pcapng --seconds 1");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(facts(&format!("{STATE}/ports.json")).uid(), DAEMON);
        for signal in [Signal::TERM, Signal::KILL] {
            let _ = switch.end(signal);
            if signal == Signal::KILL {
                // As if the daemon was killed between the socket's bind and its mode. Sockets of
                // guests belong to their owners.
                run(&format!("chmod 0 {SOCKET}"));
            }
            switch = start(&capabilities());
            assert_eq!(lacking(&switch.ask("port list")), [], "after {signal:?}");
            assert_eq!(switch.state("kept").0, "up", "after {signal:?}");
        }
    });
}

/// Runs the daemon without each capability in turn, and checks which features fail.
#[test]
fn each_capability_is_for_the_features_that_it_is_named_for() {
    story(&NEEDS, || {
        lay_out("");
        println!("| without | what is missing |\n| --- | --- |");
        let mut seen = Vec::new();
        for (left_out, _) in WITHOUT {
            let mut kept = capabilities();
            kept.retain(|name| left_out.split(' ').all(|other| name != other));
            let switch = start(&kept);
            let lacking = lacking(&switch.ask("port list"));
            let told: Vec<_> =
                lacking.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
            println!("| {left_out} | {} |", told.join("; ").replace('\n', " "));
            seen.push((left_out, lacking.into_iter().map(|(name, _)| name).collect::<Vec<_>>()));
            let _ = switch.end(Signal::TERM);
        }
        let wanted = WITHOUT
            .map(|(name, ports)| (name, ports.iter().map(|&port| port.to_owned()).collect()));
        assert_eq!(seen, wanted);
    });
}

/// It ended the daemon that ran, and then could not open the ports.
#[test]
fn a_successor_that_may_do_less_leaves_the_daemon_running() {
    story(&NEEDS, || {
        lay_out("");
        let switch = start(&capabilities());
        let refuses = |mut successor: Command, reason: &str| {
            let output = successor.arg("--take-over").output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains(reason), "{reason}: {told}");
            assert_eq!(lacking(&switch.ask("port list")), [], "{reason}");
        };
        for left_out in capabilities() {
            let kept: Vec<_> =
                capabilities().into_iter().filter(|name| *name != left_out).collect();
            refuses(command(&kept), &format!("CAP_{}", left_out.to_uppercase()));
        }
        let as_it_was = command(&capabilities());
        let mut elsewhere = Command::new("nsenter");
        elsewhere.arg("--net=/run/netns/guest").arg(as_it_was.get_program());
        elsewhere.args(as_it_was.get_args());
        refuses(elsewhere, "another network namespace");
        let mut as_it_was = command(&capabilities());
        as_it_was.arg("--take-over");
        let successor = switch.take_over_by(as_it_was);
        assert_eq!(lacking(&successor.ask("port list")), []);
        assert!(successor.end(Signal::TERM).success());
    });
}
