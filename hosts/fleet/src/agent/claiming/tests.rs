//! Agents take turns in any order, read late, and stop between two writes: no two hosts ever carry
//! one address.

use super::*;
use crate::etcd::{Compare, KeyValue, Operation, Transaction};
use crate::store::claims::{claiming, giving_up, placing, taking_over};
use proptest::prelude::*;

/// As much of etcd as the store's transactions on claims need.
#[derive(Default)]
struct Etcd {
    keys: BTreeMap<String, (String, i64)>,
    revision: i64,
}

impl Etcd {
    fn carry_out(&mut self, transaction: &Transaction) -> Option<i64> {
        let holds = |it: &Compare| {
            self.keys.get(&it.key).map_or(0, |(_, written)| *written) == it.mod_revision.0
        };
        if !transaction.compare.iter().all(holds) {
            return None;
        }
        self.revision += 1;
        for operation in &transaction.success {
            match operation {
                Operation::Put(put) => {
                    self.keys.insert(put.key.clone(), (put.value.clone(), self.revision));
                }
                Operation::Delete(delete) => drop(self.keys.remove(&delete.key)),
            }
        }
        Some(self.revision)
    }

    fn claims(&self) -> Claims {
        let pair = |(key, (value, written)): (&String, &(String, i64))| KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: 0,
            mod_revision: *written,
            lease: 0,
        };
        Claims::of(&self.keys.iter().map(pair).collect::<Vec<_>>())
    }

    /// Host `stolen` writes its claim on an address, or deletes it.
    fn stolen(&mut self, mac: MacAddress, port: Option<u8>) {
        let host: Name = "stolen".parse().unwrap();
        let claims = self.claims();
        let own = claims.on(mac).iter().find(|claim| claim.host == host);
        if let Some(own) = own {
            self.carry_out(&giving_up(mac, &host, own.fence));
        }
        let port = port.map(|port| format!("p{port}").parse().unwrap());
        port.map(|port| self.carry_out(&claiming(mac, &host, &port).unwrap()));
    }

    fn place(&mut self, port: &str, host: &Name) {
        self.carry_out(&placing(&port.parse().unwrap(), host).unwrap()).unwrap();
    }
}

/// An agent and its switch.
struct Agent {
    host: Name,
    /// What it read last, which may be stale.
    read: Claims,
    had: Own,
    /// What its switch carries, whether the agent runs or not.
    carries: Own,
    leaving: Vec<(MacAddress, i64)>,
}

impl Agent {
    fn new(host: &str) -> Agent {
        let (read, had, carries) = Default::default();
        Agent { host: host.parse().unwrap(), read, had, carries, leaving: Vec::new() }
    }

    /// Claims what it may and reads again, passes its ports to the switch, then gives up what the
    /// switch no longer has. Stops after `writes` of these kinds of writes.
    fn turn(&mut self, model: &Model, etcd: &mut Etcd, writes: u8) {
        let mut decision = decide(model, &self.read, &self.had, &self.host);
        if !decision.take.is_empty() {
            for (port, mac) in &decision.take {
                etcd.carry_out(&claiming(*mac, &self.host, port).unwrap());
            }
            if writes < 1 {
                return;
            }
            self.read = etcd.claims();
            decision = decide(model, &self.read, &self.had, &self.host);
        }
        if writes < 1 {
            return;
        }
        self.had.clone_from(&decision.carry);
        self.carries = decision.carry;
        self.leaving = decision.leave;
        if writes < 2 {
            return;
        }
        self.late_write(etcd);
    }

    /// The host is off and the state of its switch and agent is erased; the agent's last write may
    /// still reach etcd.
    fn is_off(&mut self) {
        (self.read, self.had, self.carries) = Default::default();
    }

    /// The write that was in flight when the host was powered off reaches etcd.
    fn late_write(&mut self, etcd: &mut Etcd) {
        for (mac, fence) in std::mem::take(&mut self.leaving) {
            etcd.carry_out(&giving_up(mac, &self.host, fence));
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A person moves a port.
    Move(u8, u8),
    /// An agent reads the claims.
    Read(u8),
    /// An agent takes a turn, and stops after this many kinds of writes.
    Turn(u8, u8),
    /// A host is powered off, and another takes over a port from it.
    TakeOver(u8, u8),
    /// A host was powered off while a write was in flight; the write reaches etcd now.
    LateWrite(u8),
    /// A thief of a fourth host's credentials writes or deletes its claim on a port's
    /// address, for that port or the other.
    Stolen(u8, Option<u8>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u8..2, 0u8..3).prop_map(|(port, host)| Event::Move(port, host)),
        (0u8..3).prop_map(Event::Read),
        (0u8..3, 0u8..3).prop_map(|(host, writes)| Event::Turn(host, writes)),
        (0u8..2, 0u8..3).prop_map(|(port, host)| Event::TakeOver(port, host)),
        (0u8..3).prop_map(Event::LateWrite),
        (0u8..2, proptest::option::of(0u8..2)).prop_map(|(mac, port)| Event::Stolen(mac, port)),
    ]
}

fn model() -> Model {
    let port = |number: u8| {
        format!(
            "[[port]]\nname = 'p{number}'\nnetwork = 'n'\nmac = '02:00:00:00:00:0{number}'\ntap = 't{number}'\n"
        )
    };
    let text = format!("version = 1\n[[network]]\nname = 'n'\n{}{}", port(0), port(1));
    Model::from_toml("t", &text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_two_hosts_carry_one_address(events in proptest::collection::vec(event(), 0..60)) {
        let (model, mut etcd) = (model(), Etcd::default());
        let mut agents = ["h0", "h1", "h2"].map(Agent::new);
        for event in events {
            match event {
                Event::Move(port, host) => {
                    let host = agents[usize::from(host)].host.clone();
                    etcd.place(&format!("p{port}"), &host);
                }
                Event::Read(host) => agents[usize::from(host)].read = etcd.claims(),
                Event::LateWrite(host) => agents[usize::from(host)].late_write(&mut etcd),
                Event::TakeOver(port, host) => {
                    let mac = model.ports[usize::from(port)].mac;
                    // As stale as what that host read last.
                    let claims = agents[usize::from(host)].read.clone();
                    let Some(owner) = claims.owner(mac) else { continue };
                    if let Some(old) = agents.iter_mut().find(|agent| agent.host == owner.host) {
                        old.is_off();
                    }
                    let (host, port) = (&agents[usize::from(host)].host, format!("p{port}"));
                    let port = port.parse().unwrap();
                    etcd.carry_out(&taking_over(mac, claims.on(mac), (host, &port)).unwrap());
                }
                Event::Stolen(mac, port) => etcd.stolen(model.ports[usize::from(mac)].mac, port),
                Event::Turn(host, writes) => {
                    // Only the store's comparisons protect a turn that acts on a stale read.
                    agents[usize::from(host)].turn(&model, &mut etcd, writes);
                }
            }
            for port in ["p0", "p1"] {
                let name: PortName = port.parse().unwrap();
                let carriers: Vec<&Name> =
                    agents.iter().filter(|it| it.carries.contains_key(&name)).map(|it| &it.host).collect();
                prop_assert!(carriers.len() <= 1, "{port}: {carriers:?}");
            }
        }
    }

    /// Its claims are in order behind the owner's. It cannot write the owner's key.
    #[test]
    fn a_stolen_host_takes_no_port_from_the_host_that_has_it(
        writes in proptest::collection::vec((0u8..2, proptest::option::of(0u8..2)), 0..20),
    ) {
        let (model, mut etcd) = (model(), Etcd::default());
        let mut agent = Agent::new("h0");
        etcd.place("p0", &agent.host);
        agent.read = etcd.claims();
        agent.turn(&model, &mut etcd, 2);
        prop_assert_eq!(agent.carries.len(), 1);
        for (mac, port) in writes {
            etcd.stolen(model.ports[usize::from(mac)].mac, port);
            agent.read = etcd.claims();
            agent.turn(&model, &mut etcd, 2);
            prop_assert_eq!(agent.carries.len(), 1);
            let claimed = agent.read.claimed([&model]);
            prop_assert_eq!(claimed.get(&model.ports[0].name), Some(&agent.host));
        }
    }
}

#[test]
fn a_stale_token_gives_up_nothing_and_its_holder_gets_a_finding() {
    let (model, mut etcd) = (model(), Etcd::default());
    let [mut old, new] = ["h0", "h1"].map(Agent::new);
    etcd.place("p0", &old.host);
    old.read = etcd.claims();
    old.turn(&model, &mut etcd, 2);
    let (mac, fence) = old.carries.values().next().cloned().unwrap();
    let mac: MacAddress = mac.parse().unwrap();
    // A person says that h0 is off and takes its port over.
    let (claims, port) = (etcd.claims(), "p0".parse().unwrap());
    let write = taking_over(mac, claims.on(mac), (&new.host, &port)).unwrap();
    let newer = etcd.carry_out(&write).unwrap();
    assert!(newer > fence);
    let late = giving_up(mac, &old.host, fence);
    assert_eq!(etcd.carry_out(&late), None, "a stale token owns nothing");
    let decision = decide(&model, &etcd.claims(), &old.had, &old.host);
    assert!(decision.carry.is_empty() && decision.leave.is_empty(), "{decision:?}");
    assert_eq!(decision.findings[0].kind, "claim_taken_over");
    let decision = decide(&model, &etcd.claims(), &new.had, &new.host);
    assert_eq!(decision.carry.len(), 1);
}

#[test]
fn a_host_that_waits_names_the_host_it_waits_for() {
    let (model, mut etcd) = (model(), Etcd::default());
    let mac = model.ports[0].mac;
    let port = "p0".parse().unwrap();
    etcd.carry_out(&claiming(mac, &"h1".parse().unwrap(), &port).unwrap()).unwrap();
    let host: Name = "h0".parse().unwrap();
    etcd.place("p0", &host);
    let decision = decide(&model, &etcd.claims(), &Own::new(), &host);
    let finding = &decision.findings[0];
    assert_eq!(finding.kind, "claim_waits");
    assert!(finding.problem.remedy.contains("fleet move p0 h0 --take-over"), "{}", finding.problem);
    assert!(decision.take.is_empty() && decision.carry.is_empty());
}

#[test]
fn a_host_reclaims_what_etcd_lost_unless_another_was_faster() {
    let (model, mut etcd) = (model(), Etcd::default());
    let [mut one, mut other] = ["h0", "h1"].map(Agent::new);
    etcd.place("p0", &one.host);
    one.read = etcd.claims();
    one.turn(&model, &mut etcd, 2);
    assert_eq!(one.carries.len(), 1);
    let mut etcd = Etcd { revision: etcd.revision, ..Etcd::default() };
    for agent in [&mut one, &mut other] {
        agent.read = Claims::default();
        agent.turn(&model, &mut etcd, 2);
    }
    assert_eq!((one.carries.len(), other.carries.len()), (1, 0));
    // The port stays once etcd has the claim again, and goes where a person moves it.
    one.read = etcd.claims();
    one.turn(&model, &mut etcd, 2);
    assert_eq!(one.carries.len(), 1);
    etcd.place("p0", &other.host);
    one.read = etcd.claims();
    one.turn(&model, &mut etcd, 2);
    assert!(one.carries.is_empty() && etcd.claims().on(model.ports[0].mac).is_empty());
}

#[test]
fn of_two_hosts_that_claim_at_once_the_first_owns_the_address_and_the_other_waits() {
    let (model, mut etcd) = (model(), Etcd::default());
    let [mut one, mut other] = ["h0", "h1"].map(Agent::new);
    etcd.place("p0", &one.host);
    one.read = etcd.claims();
    etcd.place("p0", &other.host);
    other.read = etcd.claims();
    one.turn(&model, &mut etcd, 0);
    other.turn(&model, &mut etcd, 2);
    assert_eq!(etcd.claims().on(model.ports[0].mac).len(), 2);
    assert!(other.carries.is_empty(), "it is behind the first");
    // The first reads that the port is to go on, and gives the claim up.
    one.read = etcd.claims();
    one.turn(&model, &mut etcd, 2);
    other.read = etcd.claims();
    other.turn(&model, &mut etcd, 2);
    assert_eq!((one.carries.len(), other.carries.len()), (0, 1));
}

#[test]
fn a_host_prepares_only_a_vhost_user_port_whose_guest_migrates_to_it() {
    let port = |name: &str, mac: u8, device: &str| {
        format!(
            "[[port]]\nname = '{name}'\nnetwork = 'n'\nmac = '02:00:00:00:00:0{mac}'\n{device}\n"
        )
    };
    let (vm, tap) = (port("vm", 1, "vhost-user = '/run/vm.sock'"), port("tap", 2, "tap = 't'"));
    let text = format!("version = 1\n[[network]]\nname = 'n'\n{vm}{tap}");
    let model = Model::from_toml("t", &text).unwrap();
    let [source, host] = ["h0", "h1"].map(|name| name.parse::<Name>().unwrap());
    let coming = ["vm", "tap"].map(|port| (port.to_owned(), host.clone()));
    let mut claims = Claims::default();
    claims.coming.extend(coming);
    let prepared = |host: &Name| {
        let decision = decide(&model, &claims, &Own::new(), host);
        decision.claimed(host).into_keys().map(|port| port.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((prepared(&host), prepared(&source)), (vec!["vm".to_owned()], vec![]));
}
