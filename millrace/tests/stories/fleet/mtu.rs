//! `millrace fleet mtu`: agents on hosts of the story prove the paths between them, and each seeded
//! fault is found.
//!
//! ```text
//! n1 … nN: eth0 ── br0, the paths to be proven, MTU 9000
//!          eth1 ── management ── etcd
//! ```

use super::hosts::operate;
use crate::etcd::{Etcd, NEED};
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::millrace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Instant;
use waiting::until;

const NEEDS: [Need; 2] = [NEED, Need::Program("tc")];
const ETCD: &str = "10.8.0.254";
const PICTURE: &str = "/run/paths.svg";

/// Hosts, their agents, and etcd.
struct Hosts {
    agents: Vec<Child>,
    _etcd: Etcd,
}

impl Hosts {
    fn new(count: u8) -> Hosts {
        for (bridge, mtu) in [("br0", 9000), ("management", 1500)] {
            run(&format!("ip link add {bridge} mtu {mtu} type bridge forward_delay 0 stp_state 0"));
            run(&format!("ip link set {bridge} up"));
        }
        run(&format!("ip address add {ETCD}/24 dev management"));
        // Faulty paths send their frames here.
        run("ip link add sink mtu 9000 type veth peer name sink0 mtu 9000");
        run("ip link set sink up");
        // All namespaces share the kernel's table of 1,024 neighbours that it learns by itself.
        let neighbour = |number| {
            format!("neigh add 10.9.0.{number} lladdr {} dev eth0 nud permanent\n", mac(number))
        };
        std::fs::write("/run/neighbours", (1..=count).map(neighbour).collect::<String>()).unwrap();
        let etcd = Etcd::reached_at(ETCD);
        let agents = (1..=count).map(|number| start(attach(number), number, true)).collect();
        let hosts = Hosts { agents, _etcd: etcd };
        until("all responders listen", || {
            let status = operate("status --json").stdout;
            let status: Value = serde_json::from_slice(&status).ok()?;
            let all = status["hosts"].as_array()?;
            let listens = |host: &&Value| host["status"]["mtu_responder"].is_string();
            (all.iter().filter(listens).count() == usize::from(count)).then_some(())
        });
        hosts
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.agents.iter_mut().for_each(end);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn mac(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

/// Makes a host on both networks.
fn attach(number: u8) -> Host {
    let host = Host::new(format!("n{number}").leak());
    let data = format!("ip link add v{number} mtu 9000 type veth peer name eth0 mtu 9000");
    run(&format!("{data} address {} netns n{number}", mac(number)));
    run(&format!("ip link set v{number} master br0 up"));
    host.assign_addresses("eth0", number);
    host.run("ip -batch /run/neighbours");
    run(&format!("ip link add m{number} type veth peer name eth1 netns n{number}"));
    run(&format!("ip link set m{number} master management up"));
    host.run(&format!("ip address add 10.8.0.{number}/24 dev eth1"));
    host.run("ip link set eth1 up");
    host
}

/// Starts the agent of a host without a switch, which can probe nevertheless.
fn start(host: Host, number: u8, responds: bool) -> Child {
    let mut command = host.command(millrace().get_program().to_str().unwrap());
    command.env("MILLRACE_LOG", "error").args(["fleet", "agent", "--insecure-http"]);
    command.args(["--host", &format!("n{number}"), "--etcd", &format!("http://{ETCD}:2379")]);
    command.args(["--state-dir", &format!("/run/n{number}.fleet")]);
    command.args(["--socket", &format!("/run/n{number}.api")]);
    if responds {
        command.args(["--mtu-address", &format!("10.9.0.{number}")]);
    }
    command.spawn().unwrap()
}

/// Has the fleet checked. Returns the report and the exit code.
fn check() -> (Value, i32) {
    let output = operate(&format!("mtu --mtu 9000 --json --svg {PICTURE}"));
    let error = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    (report, output.status.code().unwrap())
}

/// Returns each finding's hop, its place, and the value seen.
fn findings(report: &Value) -> Vec<[String; 3]> {
    let all = report["findings"].as_array().unwrap().iter();
    all.map(|it| ["hop", "at", "seen"].map(|key| it[key].as_str().unwrap().to_owned())).collect()
}

/// Returns what could not be checked.
fn unchecked(report: &Value) -> Vec<String> {
    let all = report["unchecked"].as_array().unwrap().iter();
    all.map(|it| it["error"].as_str().unwrap().to_owned()).collect()
}

/// A device or direction on the way that carries too little.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A host's own device.
    Device(u8, u16),
    /// The port that a host is attached to.
    Port(u8, u16),
    /// A single direction, which loses packets of 8192 bytes and more.
    Direction(u8, u8),
}

impl Fault {
    fn seed(self) {
        match self {
            Fault::Device(host, mtu) => device(host, mtu),
            Fault::Port(host, mtu) => drop(run(&format!("ip link set v{host} mtu {mtu}"))),
            Fault::Direction(from, to) => {
                run(&format!("tc qdisc add dev v{from} ingress"));
                run(&format!(
                    "tc filter add dev v{from} parent ffff: protocol ip u32 match ip dst 10.9.0.{to}/32 \
                     match u16 0x2000 0xe000 at 2 action mirred egress redirect dev sink"
                ));
            }
        }
    }

    fn mend(self) {
        match self {
            Fault::Device(host, _) => device(host, 9000),
            Fault::Port(host, _) => drop(run(&format!("ip link set v{host} mtu 9000"))),
            Fault::Direction(from, _) => drop(run(&format!("tc qdisc del dev v{from} ingress"))),
        }
    }

    /// Returns the finding that names the fault.
    fn finding(self) -> [String; 3] {
        match self {
            Fault::Device(host, mtu) => ["vnic".into(), format!("n{host}"), mtu.to_string()],
            Fault::Port(host, mtu) => ["switch-port".into(), format!("n{host}"), mtu.to_string()],
            Fault::Direction(from, to) => {
                let mut names = [format!("n{from}"), format!("n{to}")];
                // The report has hosts in the order of their names.
                names.sort();
                ["beyond".into(), names.join(", "), "8191".into()]
            }
        }
    }
}

fn device(host: u8, mtu: u16) {
    run(&format!("nsenter --net=/run/netns/n{host} ip link set eth0 mtu {mtu}"));
}

#[test]
fn agents_prove_the_paths_between_them_and_name_what_limits() {
    story(&NEEDS, || {
        let mut hosts = Hosts::new(5);
        let (report, code) = check();
        assert_eq!((findings(&report), unchecked(&report), code), (vec![], vec![], 0));
        assert_eq!(report["directions"].as_array().unwrap().len(), 20);

        let faults = [Fault::Device(1, 4000), Fault::Port(3, 1500), Fault::Direction(2, 4)];
        faults.iter().for_each(|fault| fault.seed());
        let (report, code) = check();
        let (mut found, mut wanted) = (findings(&report), faults.map(Fault::finding).to_vec());
        found.sort();
        wanted.sort();
        assert_eq!((found, unchecked(&report), code), (wanted, vec![], 1), "{report:#}");
        let picture = std::fs::read_to_string(PICTURE).unwrap();
        assert!(picture.contains("<title>n2 to n4: 8191</title>"), "{picture}");
        let text = String::from_utf8(operate("mtu --mtu 9000").stdout).unwrap();
        let row = |line: &&str| line.split_whitespace().eq(["n2", "n4", "8191", "9000", "beyond"]);
        assert_eq!(text.lines().filter(row).count(), 1, "{text}");
        faults.iter().for_each(|fault| fault.mend());

        // One agent is killed, and one has no responder.
        end(&mut hosts.agents[4]);
        hosts.agents.push(start(attach(6), 6, false));
        until("it reports", || {
            let status = String::from_utf8(operate("status").stdout).unwrap();
            status
                .lines()
                .any(|line| line.starts_with("n6 ") && !line.contains("away"))
                .then_some(())
        });
        let mut first = millrace().args(["fleet", "mtu"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains(" hosts are ready"), "it has begun");
        // The first check still waits for the dead agent.
        let second = operate("mtu");
        let error = String::from_utf8(second.stderr).unwrap();
        assert!(error.contains("another check of MTUs is running"), "{error}");
        assert_eq!(second.status.code(), Some(1));
        kill_process(Pid::from_child(&first), Signal::INT).unwrap();
        assert_eq!(first.wait().unwrap().code(), Some(130));
        // The first command took its request back when it ended.
        let (report, code) = check();
        let told = unchecked(&report);
        assert_eq!((findings(&report), told.len(), code), (vec![], 2, 1), "{told:?}");
        assert!(told.iter().any(|it| it.contains("host n6 runs no responder")), "{told:?}");
        assert!(told.iter().any(|it| it.contains("host n5 ")), "{told:?}");
        assert_eq!(report["directions"].as_array().unwrap().len(), 12);
    });
}

/// Number of hosts, of faults in all, and of faults at a time.
const HOSTS: u8 = 64;
const FAULTS: usize = 200;
const AT_A_TIME: usize = 5;

#[test]
fn sixty_four_hosts_find_two_hundred_faults() {
    let needs = [NEEDS.as_slice(), &[Need::Long]].concat();
    story(&needs, || {
        let hosts = Hosts::new(HOSTS);
        let (mut times, mut found) = (Vec::new(), 0);
        let mut timed = || {
            let begun = Instant::now();
            let (report, code) = check();
            times.push(begun.elapsed().as_secs_f64());
            assert_eq!(unchecked(&report), Vec::<String>::new());
            (report, code)
        };
        assert_eq!(timed().1, 0, "healthy at first");
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..FAULTS / AT_A_TIME {
            let faults = choose(&mut random);
            faults.iter().for_each(|fault| fault.seed());
            let report = timed().0;
            faults.iter().for_each(|fault| fault.mend());
            let (mut seen, mut wanted) =
                (findings(&report), faults.iter().map(|fault| fault.finding()).collect::<Vec<_>>());
            let named = wanted.iter().filter(|it| seen.contains(it)).count();
            found += named;
            seen.sort();
            wanted.sort();
            if seen != wanted {
                println!("measured: round {round}: {wanted:?} were found as {seen:?}");
            }
        }
        assert_eq!(timed().1, 0, "healthy at last");
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "measured: {HOSTS} hosts, {found} of {FAULTS} faults found and named, {AT_A_TIME} at a time: {} checks, \
             median {median:.1} s, longest {most:.1} s",
            times.len()
        );
        assert_eq!(found, FAULTS);
        drop(hosts);
    });
}

/// Chooses faults at different hosts, each with a different size.
fn choose(random: &mut fastrand::Rng) -> Vec<Fault> {
    let mut hosts: Vec<u8> = (1..=HOSTS).collect();
    random.shuffle(&mut hosts);
    let mut hosts = hosts.into_iter();
    let mut host = || hosts.next().unwrap();
    let fault = |number: usize| {
        let mtu = 1280 + 100 * u16::try_from(number).unwrap() + random.u16(..90);
        match random.u8(..3) {
            0 => Fault::Device(host(), mtu),
            1 => Fault::Port(host(), mtu),
            _ => Fault::Direction(host(), host()),
        }
    };
    (0..AT_A_TIME).map(fault).collect()
}
