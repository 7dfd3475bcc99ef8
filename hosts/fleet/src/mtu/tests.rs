//! The agents' and the command's own code over a network that is a function.

use super::*;
use crate::agent::mtu::probe;
use crate::configuration::Host;
use crate::store::Status;
use path_mtu::frame::Outcome;
use path_mtu::judge::Hop;
use path_mtu::plan::missed;
use path_mtu::probing::Prober;
use std::net::{IpAddr, Ipv4Addr};

const WANTED: u16 = 9000;

/// What each direction carries.
type Limit<'n> = &'n (dyn Fn(usize, usize) -> u16 + Sync);

/// A host's probes in a network that carries so much.
struct Simulated<'n> {
    from: usize,
    limit: Limit<'n>,
}

impl Prober for Simulated<'_> {
    fn probe(&mut self, to: SocketAddr, sizes: &[u16], _: Duration) -> Result<Outcome, Problem> {
        let IpAddr::V4(ip) = to.ip() else { panic!("no address of this network") };
        let to = usize::try_from(ip.to_bits() & 0xff_ffff).unwrap();
        let limit = (self.limit)(self.from, to).min(WANTED);
        Ok(Outcome {
            device_mtu: WANTED,
            interface: "eth0".to_owned(),
            arrived: sizes.iter().map(|size| *size <= limit).collect(),
            ..Outcome::default()
        })
    }
}

fn plan(hosts: usize, peers: Option<usize>, seed: u64) -> MtuPlan {
    let address = |place: usize| {
        let ip = Ipv4Addr::from_bits(0x0a00_0000 | u32::try_from(place).unwrap());
        SocketAddr::from((ip, 5910))
    };
    let host = |place| (format!("h{place}").parse().unwrap(), address(place));
    MtuPlan { mtu: WANTED, peers, seed, hosts: (0..hosts).map(host).collect() }
}

/// Returns the answers of all hosts, converted to JSON and back as in etcd.
fn answers(plan: &MtuPlan, limit: Limit<'_>) -> BTreeMap<Name, MtuAnswer> {
    let answer = |(from, (name, _)): (usize, &(Name, SocketAddr))| {
        let directions = probe(plan, name, || Ok(Simulated { from, limit })).unwrap().unwrap();
        let directions = Some(directions);
        let answer =
            MtuAnswer { ready: true, device_mtu: WANTED, directions, ..MtuAnswer::default() };
        let text = serde_json::to_string(&answer).unwrap();
        (name.clone(), serde_json::from_str(&text).unwrap())
    };
    plan.hosts.iter().enumerate().map(answer).collect()
}

/// 1,000 hosts, 16 peers each: faults of hosts are all found, of single pairs as many as stated.
#[test]
fn a_sample_of_a_thousand_hosts_finds_what_is_stated() {
    const HOSTS: usize = 1000;
    const PAIRS: usize = 2000;
    const SAMPLES: u64 = 3;
    let mut random = fastrand::Rng::with_seed(1);
    let (mut found, mut longest) = (0, Duration::ZERO);
    for seed in 1..=SAMPLES {
        let mut faulty = BTreeSet::new();
        while faulty.len() < PAIRS {
            let (from, to) = (random.usize(..HOSTS), random.usize(..HOSTS));
            if from != to && !faulty.contains(&(to, from)) {
                faulty.insert((from, to));
            }
        }
        let limit = |from, to| if faulty.contains(&(from, to)) { 1500 } else { WANTED };
        let (plan, begun) = (plan(HOSTS, Some(PEERS), seed), Instant::now());
        let report = judge(&plan, answers(&plan, &limit), Vec::new());
        longest = longest.max(begun.elapsed());
        let named = report.limited();
        assert!(named.keys().all(|direction| faulty.contains(direction)), "none is invented");
        assert_eq!(report.directions.iter().filter(|it| it.carried == 1500).count(), named.len());
        assert!(report.unchecked.is_empty());
        found += named.len();
    }
    let seen = 1.0 - found as f64 / (PAIRS as f64 * SAMPLES as f64);
    let stated = missed(HOSTS, PEERS, 1);
    println!(
        "measured: 1,000 simulated hosts, {SAMPLES} samples with {PAIRS} faults of single pairs: missed {seen:.4}, stated {stated:.4}, \
         at most {:.1} s",
        longest.as_secs_f64()
    );
    // Four standard deviations of 6,000 pairs of which 1.6 % are probed.
    assert!((seen - stated).abs() < 0.0065, "{seen} {stated}");
}

#[test]
fn a_sample_of_a_thousand_hosts_misses_no_fault_of_a_host() {
    let plan = plan(1000, Some(PEERS), 7);
    let size = |host: usize| 1500 + u16::try_from(host).unwrap();
    let toward = |to: usize| if to % 50 == 3 { size(to) } else { WANTED };
    let report = judge(&plan, answers(&plan, &|_, to| toward(to)), Vec::new());
    for host in (3..1000).step_by(50) {
        let (name, seen) = (format!("h{host}"), size(host).to_string());
        let is_it = |it: &&path_mtu::judge::Finding| {
            it.hop == Hop::SwitchPort && it.at == name && it.problem.seen == seen
        };
        assert_eq!(report.findings.iter().filter(is_it).count(), 1, "{name}");
    }
    assert_eq!(report.findings.len(), 20);
    let sampled = report.sampled.unwrap();
    assert_eq!((sampled.peers, sampled.seed), (16, 7));
}

#[test]
fn a_hostile_answer_is_held_to_the_plan() {
    let plan = plan(4, None, 1);
    let mut all = answers(&plan, &|_, _| WANTED);
    let name: Name = "h1".parse().unwrap();
    let said = all.get_mut(&name).unwrap().directions.as_mut().unwrap();
    let good = said[0].clone();
    let lie = |from, to, carried| Observation { from, to, carried, ..good.clone() };
    // Observations of another host, to itself, twice, to an unknown host, and more than was asked
    // for.
    *said = vec![lie(3, 2, 1500), lie(1, 2, 0), lie(1, 1, 0), lie(1, 99, 0), lie(1, 0, 60_000)];
    said[0].interface = "eth0\n; reboot and a long name".to_owned();
    let report = judge(&plan, all, Vec::new());
    let own: Vec<_> = report.directions.iter().filter(|it| it.from == 1).collect();
    assert_eq!((own.len(), own[0].to, own[0].carried), (1, 2, 1500));
    assert_eq!(own[0].interface, "eth0rebootandal");
    assert!(report.directions.iter().filter(|it| it.from != 1).all(|it| it.carried == WANTED));
    let told = &report.unchecked[0].error;
    assert!(told.contains("host h1 has not answered for 2 directions"), "{told}");
}

#[test]
fn a_host_that_does_not_answer_or_cannot_probe_is_a_finding() {
    let plan = plan(3, None, 1);
    let mut all = answers(&plan, &|_, _| WANTED);
    all.remove(&"h0".parse::<Name>().unwrap());
    let other = all.get_mut(&"h2".parse::<Name>().unwrap()).unwrap();
    other.directions = None;
    other.problem = Some(Problem::new("x".repeat(10_000)).remedy("wait"));
    let report = judge(&plan, all, vec![Problem::new("host z is away")]);
    let told: Vec<&str> = report.unchecked.iter().map(|it| it.error.as_str()).collect();
    assert_eq!((told.len(), report.healthy, told[0]), (3, false, "host z is away"));
    assert!(told[1].contains("host h0 has not answered for 2 directions"), "{told:?}");
    assert!(told[2].starts_with("host h2 cannot probe: xxx") && told[2].len() < 500);
}

#[test]
fn hosts_that_cannot_be_probed_are_named_and_no_address_is_probed_twice() {
    let at: SocketAddr = "10.0.0.1:5910".parse().unwrap();
    let record = |name: &str, status: Option<Option<SocketAddr>>| HostRecord {
        host: Host { name: name.parse().unwrap(), labels: BTreeMap::new() },
        status: status.map(|mtu_responder| Status { mtu_responder, ..Status::default() }),
        written: 1,
    };
    let records = [
        record("a", Some(Some(at))),
        record("b", None),
        record("c", Some(None)),
        record("d", Some(Some("[::ffff:10.0.0.1]:7".parse().unwrap()))),
        record("e", Some(Some("10.0.0.2:5910".parse().unwrap()))),
        record("f", Some(Some("224.0.0.1:5910".parse().unwrap()))),
    ];
    let (there, unchecked) = split(&records);
    assert_eq!(there, [("e".parse().unwrap(), "10.0.0.2:5910".parse().unwrap())]);
    let told: Vec<&str> = unchecked.iter().map(|it| it.error.as_str()).collect();
    assert!(told[0].contains("host b is away") && told[1].contains("host c runs no responder"));
    assert!(told[2].contains("hosts a and d say that they have one address"), "{told:?}");
    assert!(told[3].contains("host f says that it has an address that no host has"), "{told:?}");
}
