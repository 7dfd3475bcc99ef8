//! Judging held to seeded faults of a small world: all are found, none is invented.

use super::*;
use fastrand::Rng;

/// Hosts on two switches with a link between them: odd places on one, even ones on the other.
struct World {
    devices: Vec<u16>,
    /// MTUs of each host's switch port: toward it, and from it.
    ports: Vec<(u16, u16)>,
    /// From the odd switch to the even one, and back.
    link: (u16, u16),
    /// Between the two: says what is too big.
    router: Option<(IpAddr, u16)>,
    /// One direction that has a way of its own.
    single: Option<(usize, usize, u16)>,
    wanted: u16,
}

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

impl World {
    fn healthy(hosts: usize, wanted: u16) -> World {
        World {
            devices: vec![wanted; hosts],
            ports: vec![(wanted, wanted); hosts],
            link: (wanted, wanted),
            router: None,
            single: None,
            wanted,
        }
    }

    fn hosts(&self) -> Vec<Host> {
        let host = |place: usize| Host {
            name: format!("host{place}"),
            ip: IpAddr::from([10, 0, 0, u8::try_from(place).unwrap()]),
            prefix: None,
            interface: "eth0".into(),
            below: Vec::new(),
        };
        (0..self.devices.len()).map(host).collect()
    }

    /// Returns the result of probing one direction. A receiver's device takes a tag more than its
    /// MTU, as a veth does.
    fn observe(&self, from: usize, to: usize) -> Observation {
        let crosses = from % 2 != to % 2;
        let link = if from % 2 == 1 { self.link.0 } else { self.link.1 };
        let single = self.single.filter(|it| (it.0, it.1) == (from, to));
        let limits = [
            Some(self.devices[from]),
            Some(self.ports[from].1),
            crosses.then_some(link),
            self.router.filter(|_| crosses).map(|router| router.1),
            single.map(|it| it.2),
            Some(self.ports[to].0),
            Some(self.devices[to] + 4),
        ];
        let carried = limits.into_iter().flatten().min().unwrap().min(self.wanted);
        let told =
            self.router.filter(|router| crosses && router.1 < self.devices[from].min(self.wanted));
        let (interface, device_mtu) = ("eth0".to_owned(), self.devices[from]);
        Observation { from, to, interface, device_mtu, carried, told, ..Observation::default() }
    }

    fn judge(&self, directions: &[(usize, usize)]) -> Vec<Finding> {
        let observations: Vec<_> =
            directions.iter().map(|(from, to)| self.observe(*from, *to)).collect();
        judge(&self.hosts(), &observations, self.wanted)
    }
}

/// Adds a random fault. Returns what must be found: the hop, words of the location, and the value
/// seen.
fn seed(world: &mut World, random: &mut Rng) -> (Hop, String, u16) {
    let hosts = world.devices.len();
    let host = random.usize(..hosts);
    let small =
        *random.choice(&[1500, 1496, 1400, 1280, world.wanted - 4, world.wanted - 8]).unwrap();
    let small = small.min(world.wanted - 4);
    let name = format!("host{host}");
    let port =
        |words: &str| (Hop::SwitchPort, format!("the switch port of {name}, {words}"), small);
    match random.u8(..9) {
        0 => {
            world.devices[host] = small;
            (Hop::Vnic, format!("{name}: eth0"), small)
        }
        1 => {
            world.ports[host] = (small, small);
            port("in both directions")
        }
        2 => {
            world.ports[host].0 = small;
            port("toward it only")
        }
        3 => {
            world.ports[host].1 = small;
            port("from it only")
        }
        4 => {
            world.link = (small, small);
            (Hop::Uplink, "both directions".into(), small)
        }
        5 => {
            world.link.0 = small;
            (Hop::Uplink, "from host1, host3".into(), small)
        }
        6 => {
            world.router = Some((ROUTER, small));
            (Hop::Beyond, format!("router {ROUTER}"), small)
        }
        7 => {
            let to = (host + 1 + random.usize(..hosts - 1)) % hosts;
            world.single = Some((host, to, small));
            (Hop::Beyond, format!("from {name} to host{to}, in this direction only"), small)
        }
        _ => {
            world.ports[host].0 = 0;
            (
                Hop::SwitchPort,
                format!("the switch port of {name}, toward it only, carries nothing"),
                0,
            )
        }
    }
}

fn fault(number: u64) -> (World, (Hop, String, u16)) {
    let mut random = Rng::with_seed(number);
    let wanted = *random.choice(&[9000, 1500, 4000, 9216]).unwrap();
    let mut world = World::healthy(random.usize(4..=12), wanted);
    let fault = seed(&mut world, &mut random);
    (world, fault)
}

#[test]
fn two_hundred_seeded_faults_are_found_and_none_is_invented() {
    for number in 0..200 {
        let (world, (hop, words, seen)) = fault(number);
        let directions = crate::plan::all(world.devices.len());
        assert_eq!(World::healthy(world.devices.len(), world.wanted).judge(&directions), []);
        let findings = world.judge(&directions);
        let texts: Vec<_> = findings.iter().map(|it| it.problem.to_string()).collect();
        assert_eq!(findings.len(), 1, "{number}: {words}: {texts:#?}");
        let found = &findings[0];
        assert_eq!(found.hop, hop, "{number}: {words}: {texts:#?}");
        assert!(found.problem.error.contains(&words), "{number}: {words}: {texts:#?}");
        let value = if seen == 0 { "no packet of any size".into() } else { seen.to_string() };
        assert_eq!(found.problem.seen, value, "{number}: {texts:#?}");
        assert!(!found.problem.remedy.is_empty());
        let all = directions.iter().map(|it| world.observe(it.0, it.1));
        let fails: BTreeSet<_> =
            all.filter(|it| it.carried < world.wanted).map(|it| (it.from, it.to)).collect();
        assert_eq!(found.pairs.iter().copied().collect::<BTreeSet<_>>(), fails, "{number}");
    }
}

#[test]
fn two_faults_at_two_hosts_are_two_findings() {
    let (mut pairs, mut random) = (0, Rng::with_seed(7));
    while pairs < 200 {
        let mut world = World::healthy(random.usize(6..=12), 9000);
        let (one, other) =
            (random.usize(..world.devices.len()), random.usize(..world.devices.len()));
        if one == other {
            continue;
        }
        pairs += 1;
        world.devices[one] = 1500;
        let toward = random.bool();
        world.ports[other] = if toward { (4000, 9000) } else { (9000, 4000) };
        let findings = world.judge(&crate::plan::all(world.devices.len()));
        let found: Vec<_> = findings.iter().map(|it| (it.hop, it.at.clone())).collect();
        let wanted = [(Hop::Vnic, format!("host{one}")), (Hop::SwitchPort, format!("host{other}"))];
        assert!(found.len() == 2 && wanted.iter().all(|it| found.contains(it)), "{found:?}");
    }
}

#[test]
fn a_sample_finds_the_faults_of_hosts_and_links_too() {
    for number in 0..200 {
        let mut random = Rng::with_seed(number);
        let mut world = World::healthy(random.usize(20..60), 9000);
        let fault = seed(&mut world, &mut random);
        let findings = world.judge(&crate::plan::sample(world.devices.len(), 4, number));
        let is_single = world.single.is_some();
        assert!(is_single || !findings.is_empty(), "{number}: {fault:?}");
        assert_eq!(World::healthy(20, 9000).judge(&crate::plan::sample(20, 4, number)), []);
    }
}

#[test]
fn two_hosts_alone_cannot_tell_a_port_from_an_uplink() {
    let mut world = World::healthy(2, 9000);
    world.link = (1500, 9000);
    let findings = world.judge(&[(0, 1), (1, 0)]);
    assert_eq!((findings.len(), findings[0].hop), (1, Hop::Between));
    let said = &findings[0].problem.error;
    assert!(
        said.contains("from host1 to host0, in this direction only, drops packets above 1500"),
        "{said}"
    );
}

#[test]
fn a_switch_that_speaks_for_the_target_is_no_router() {
    let world = World::healthy(3, 9000);
    let mut all: Vec<_> =
        crate::plan::all(3).into_iter().map(|it| world.observe(it.0, it.1)).collect();
    for it in all.iter_mut().filter(|it| it.to == 2) {
        (it.carried, it.told) = (1500, Some((IpAddr::from([10, 0, 0, 2]), 1500)));
    }
    let findings = judge(&world.hosts(), &all, 9000);
    assert_eq!((findings.len(), findings[0].hop), (1, Hop::SwitchPort));
    assert!(findings[0].problem.error.contains("reported from the target's address"));
}

#[test]
fn the_usual_mtu_is_that_of_most_and_of_several_the_largest() {
    assert_eq!(usual_mtu([9000, 1500, 9000, 0, 0, 0]), Some(9000));
    assert_eq!(usual_mtu([1500, 9000]), Some(9000));
    assert_eq!(usual_mtu([0]), None);
}

#[test]
fn devices_that_all_could_send_more_are_no_fault_and_one_that_could_is() {
    let mut world = World::healthy(4, 1500);
    world.devices.fill(9000);
    assert_eq!(world.judge(&crate::plan::all(4)), []);
    world.devices = vec![1500, 1500, 9000, 1500];
    let findings = world.judge(&crate::plan::all(4));
    assert_eq!((findings.len(), findings[0].hop, findings[0].at.as_str()), (1, Hop::Vnic, "host2"));
}

/// `mtu check` named a device that the probe did not pass.
#[test]
fn only_the_device_that_probes_arrive_by_explains_what_does_not() {
    let world = World::healthy(3, 9000);
    let mut all: Vec<_> =
        crate::plan::all(3).into_iter().map(|it| world.observe(it.0, it.1)).collect();
    for it in &mut all {
        // Host 2 sends by a small device, but what it gets arrives by another.
        if it.from == 2 {
            (it.interface, it.device_mtu, it.carried) = ("mgmt".into(), 1500, 1500);
        }
        if it.to == 2 {
            (it.arrives_by, it.carried) = ("lm".into(), 4000);
        }
    }
    let findings = judge(&world.hosts(), &all, 9000);
    let texts: Vec<_> = findings.iter().map(|it| it.problem.error.as_str()).collect();
    assert_eq!(findings.len(), 2, "{texts:#?}");
    assert!(texts.iter().any(|it| it.starts_with("host2: mgmt has MTU 1500")), "{texts:#?}");
    assert!(texts.iter().any(|it| it.contains("the switch port of host2, toward it only")));
}

/// Seed 004: jumbo frames on some members and not on others.
#[test]
fn a_member_below_the_device_is_named_even_if_every_probe_passes() {
    let world = World::healthy(3, 9000);
    let mut hosts = world.hosts();
    hosts[1].below = vec![Below { name: "eth3".into(), mtu: 1500 }];
    let mut all: Vec<_> =
        crate::plan::all(3).into_iter().map(|it| world.observe(it.0, it.1)).collect();
    let findings = judge(&hosts, &all, 9000);
    assert_eq!((findings.len(), findings[0].hop, findings[0].at.as_str()), (1, Hop::Vnic, "host1"));
    let said = &findings[0].problem;
    assert_eq!(said.error, "host1: eth3, below eth0, has MTU 1500, not 9000");
    assert!(said.remedy.contains("`ip link set eth3 mtu 9000` on host1"), "{}", said.remedy);
    // Not every command that prints it has a flag `--mtu`.
    assert!(said.remedy.ends_with("or lower the devices of the network's other hosts to 1500"));
    // It also explains a direction of which the member is the path.
    all.iter_mut().filter(|it| it.to == 1).for_each(|it| it.carried = 1500);
    let findings = judge(&hosts, &all, 9000);
    assert_eq!((findings.len(), findings[0].pairs.len()), (1, 2));
}

#[test]
fn where_addresses_share_a_subnet_arp_tells_a_vlan_from_a_firewall() {
    let mut world = World::healthy(3, 9000);
    world.ports[2] = (0, 0);
    let mut hosts = world.hosts();
    let mut judged = |neighbour, prefix| {
        hosts.iter_mut().for_each(|it| it.prefix = Some(prefix));
        let observe = |it: Direction| Observation { neighbour, ..world.observe(it.0, it.1) };
        let all: Vec<_> = crate::plan::all(3).into_iter().map(observe).collect();
        let findings = judge(&hosts, &all, 9000);
        assert_eq!(findings.len(), 1);
        findings[0].problem.clone()
    };
    let silent = judged(Neighbour::Silent, 24);
    assert!(silent.seen.contains("no answer to ARP"), "{silent}");
    assert!(silent.remedy.starts_with("look for a different VLAN first"), "{silent}");
    let answers = judged(Neighbour::Answers, 24);
    assert!(answers.remedy.contains("not a different VLAN"), "{answers}");
    let unknown = judged(Neighbour::Unknown, 24);
    assert!(unknown.remedy.contains("`ip neigh show "), "{unknown}");
    let apart = judged(Neighbour::Unknown, 32);
    assert!(apart.remedy.contains("different subnets"), "{apart}");
}
