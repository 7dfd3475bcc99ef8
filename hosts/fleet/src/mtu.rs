//! `fleet mtu`: makes the hosts' agents probe each other, and judges their answers.
//!
//! Request and answers go through etcd, so the command need not reach the network that is checked.
//! A responder acknowledges only probes of a check that it knows. So the hosts get ready first, and
//! those that are ready get the plan. A host's answer is not trusted: it counts only for directions
//! in the plan in which that host sends.

use crate::Name;
use crate::now;
use crate::request_lease::{self, LEASE, RequestLease, run_out};
use crate::shortened::told_by;
use crate::store::{HostRecord, MtuAnswer, MtuPlan, MtuRequest, Store};
use path_mtu::frame::{LARGEST, SMALLEST};
use path_mtu::judge::{Observation, usual_mtu};
use path_mtu::plan::{ALL_PAIRS, PEERS};
use path_mtu::report::{Checked, Found, Report};
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The interval between reads of the answers, of few hosts and of more than [`ALL_PAIRS`].
const LOOK: Duration = Duration::from_millis(200);
const LOOK_AT_MANY: Duration = Duration::from_secs(1);
/// How long a host may take until its responder is ready.
const READY: Duration = Duration::from_secs(10);

/// A check of MTUs that is asked for.
#[derive(Clone, Debug)]
pub struct CheckMtu {
    /// The MTU that every direction has to carry; `None` for that of most hosts' devices.
    pub mtu: Option<u16>,
    /// Number of peers that each host probes; `None` for all of up to 64 hosts, and 16 of more.
    pub peers: Option<usize>,
    /// The seed by which a sample of peers is drawn.
    pub seed: u64,
    /// How long the hosts may take to probe.
    pub wait: Duration,
    /// The person who asked for it.
    pub author: String,
}

impl CheckMtu {
    /// Runs the check. `tell` gets lines that report progress. If `stop` returns true, the check
    /// ends and `None` is returned. The request is removed in any case.
    ///
    /// # Errors
    /// Fails if no host is registered, another check runs, the MTU to check for is not known, or
    /// etcd does not answer.
    pub fn run(
        &self,
        store: &Store,
        tell: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Report>, Problem> {
        let hosts = store.hosts()?;
        if hosts.is_empty() {
            return Err(Problem::new("there is no host to check")
                .seen("no host is registered")
                .wanted("two or more agents with --mtu-address")
                .remedy("start `millrace fleet agent --mtu-address ADDRESS` on the hosts"));
        }
        let (there, mut unchecked) = split(&hosts);
        if there.len() < 2 {
            unchecked.push(too_few(there.len()));
            return Ok(Some(self.nothing(unchecked)));
        }
        let mut running = Running::begin(store, &self.author, tell, stop)?;
        self.drive(&mut running, &there, unchecked)
    }

    fn drive(
        &self,
        running: &mut Running<'_>,
        there: &[(Name, SocketAddr)],
        mut unchecked: Vec<Problem>,
    ) -> Result<Option<Report>, Problem> {
        let is_ready = |answer: &MtuAnswer| answer.ready || answer.problem.is_some();
        let Some(answers) = running.wait(there, READY, "ready", is_ready)? else { return Ok(None) };
        let (ready, late): (Vec<_>, Vec<_>) = there
            .iter()
            .cloned()
            .partition(|(name, _)| answers.get(name).is_some_and(|answer| answer.ready));
        unchecked.extend(late.iter().map(|(name, _)| not_ready(name, answers.get(name))));
        let of_devices = ready.iter().filter_map(|(name, _)| answers.get(name));
        let wanted = self.mtu.or_else(|| usual_mtu(of_devices.map(|answer| answer.device_mtu)));
        let wanted = wanted.map(|mtu| mtu.clamp(SMALLEST, LARGEST - 1));
        if ready.len() < 2 {
            unchecked.push(too_few(ready.len()));
            return Ok(Some(self.nothing(unchecked)));
        }
        let plan = self.plan(wanted.ok_or_else(unknown)?, ready);
        running.plan(&plan)?;
        let is_done = |answer: &MtuAnswer| answer.directions.is_some() || answer.problem.is_some();
        let Some(answers) = running.wait(&plan.hosts, self.wait, "done", is_done)? else {
            return Ok(None);
        };
        Ok(Some(judge(&plan, answers, unchecked)))
    }

    fn plan(&self, mtu: u16, hosts: Vec<(Name, SocketAddr)>) -> MtuPlan {
        let peers = self.peers.or((hosts.len() > ALL_PAIRS).then_some(PEERS));
        MtuPlan { mtu, peers, seed: self.seed, hosts }
    }

    /// Returns the report of a check that probed nothing.
    fn nothing(&self, unchecked: Vec<Problem>) -> Report {
        let plan = self.plan(self.mtu.unwrap_or_default(), Vec::new());
        judge(&plan, BTreeMap::new(), unchecked)
    }
}

/// Returns the hosts that can be probed, and the problems of the others.
fn split(hosts: &[HostRecord]) -> (Vec<(Name, SocketAddr)>, Vec<Problem>) {
    let (mut there, mut unchecked): (Vec<(Name, SocketAddr)>, _) = (Vec::new(), Vec::new());
    let mut taken: BTreeMap<IpAddr, Name> = BTreeMap::new();
    for HostRecord { host, status, .. } in hosts {
        let name = &host.name;
        let problem = match status.as_ref().map(|status| status.mtu_responder) {
            None => Problem::new(format!("host {name} is away: its paths were not probed"))
                .seen("no status of its agent")
                .wanted("an agent that reports")
                .remedy(format!("start its agent; if it is gone for good, `millrace fleet forget {name}`")),
            Some(None) => Problem::new(format!("host {name} runs no responder: its paths were not probed"))
                .seen("an agent without --mtu-address, or whose address is not there")
                .wanted("a responder on the path that is to be proven")
                .remedy(format!(
                    "start the agent of {name} with --mtu-address ADDRESS; its log says why it cannot listen"
                )),
            Some(Some(at)) if !is_station(at) => Problem::new(format!("host {name} says that it has an address that no host has"))
                .seen(at)
                .wanted("an address of its own")
                .remedy(format!("check --mtu-address of the agent of {name}")),
            Some(Some(at)) => match taken.insert(at.ip().to_canonical(), name.clone()) {
                None => {
                    there.push((name.clone(), at));
                    continue;
                }
                // One of them is wrong. It is not known which, so neither is probed.
                Some(other) => {
                    there.retain(|(known, _)| *known != other);
                    Problem::new(format!("hosts {other} and {name} say that they have one address"))
                        .seen(at)
                        .wanted("an address of its own for each host")
                        .remedy("check --mtu-address of both agents")
                }
            },
        };
        unchecked.push(problem);
    }
    (there, unchecked)
}

/// Whether a host can have the address.
fn is_station(at: SocketAddr) -> bool {
    let ip = at.ip().to_canonical();
    at.port() > 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn unknown() -> Problem {
    Problem::new("the MTU to prove is not known")
        .seen("no host that knows the MTU of the device with its --mtu-address")
        .wanted("an MTU")
        .remedy("give it with --mtu")
}

fn too_few(count: usize) -> Problem {
    Problem::new("there is no path to prove")
        .seen(format!("{count} hosts whose responders are ready"))
        .wanted("two or more")
        .remedy("start the agents of more hosts with --mtu-address")
}

fn not_ready(name: &Name, answer: Option<&MtuAnswer>) -> Problem {
    match answer.and_then(|answer| answer.problem.clone()) {
        Some(problem) => told_by(&format!("host {name} cannot probe"), &problem),
        None => Problem::new(format!("host {name} did not get ready in {} s", READY.as_secs()))
            .seen("no answer of its agent")
            .wanted("an agent that follows etcd")
            .remedy("see `millrace fleet status`, and check again"),
    }
}

/// Makes the report from the hosts' answers.
pub(crate) fn judge(
    plan: &MtuPlan,
    mut answers: BTreeMap<Name, MtuAnswer>,
    mut unchecked: Vec<Problem>,
) -> Report {
    let (mut hosts, mut observations) = (Vec::new(), Vec::new());
    let mut peers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); plan.hosts.len()];
    for (from, to) in plan.directions() {
        if let Some(own) = peers.get_mut(from) {
            own.insert(to);
        }
    }
    for ((place, (name, address)), peers) in plan.hosts.iter().enumerate().zip(peers) {
        let answer = answers.remove(name).unwrap_or_default();
        let planned = peers.len();
        let known = held_to(plan, place, peers, answer.directions.unwrap_or_default());
        if let Some(problem) = &answer.problem {
            unchecked.push(told_by(&format!("host {name} cannot probe"), problem));
        } else if known.len() < planned {
            unchecked.push(unanswered(name, known.len(), planned));
        }
        hosts.push(Checked {
            name: name.to_string(),
            address: address.to_string(),
            interface: known.first().map_or_else(String::new, |it| it.interface.clone()),
            mtu: answer.device_mtu,
            ..Checked::default()
        });
        observations.extend(known);
    }
    Report::of(Found {
        network: None,
        wanted: plan.mtu,
        peers: plan.peers,
        seed: plan.seed,
        may_be_apart: false,
        hosts,
        ips: plan.hosts.iter().map(|(_, address)| address.ip().to_canonical()).collect(),
        observations,
        unchecked,
    })
}

/// Returns the parts of a host's answer that are about directions of the plan in which it sends.
fn held_to(
    plan: &MtuPlan,
    from: usize,
    mut open: BTreeSet<usize>,
    said: Vec<Observation>,
) -> Vec<Observation> {
    const DEVICE: usize = 15;
    let own = said.into_iter().filter(|it| it.carried <= plan.mtu && open.remove(&it.to));
    let plain = |it: Observation| {
        // The names become parts of commands in remedies.
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._:@-".contains(*letter);
        let plain = |name: &str| name.chars().filter(is_plain).take(DEVICE).collect();
        let (interface, arrives_by) = (plain(&it.interface), plain(&it.arrives_by));
        Observation { from, interface, arrives_by, ..it }
    };
    own.map(plain).collect()
}

fn unanswered(name: &Name, known: usize, planned: usize) -> Problem {
    Problem::new(format!("host {name} has not answered for {} directions", planned - known))
        .seen(format!("{known} of {planned} directions in time"))
        .wanted("an answer for each of them")
        .remedy("check again with a longer --wait; `millrace fleet status` says whether its agent is away")
}

/// A running check, with its request in etcd.
struct Running<'a> {
    store: &'a Store,
    request: MtuRequest,
    /// etcd's revision of the request.
    written: i64,
    request_lease: RequestLease<'a>,
    tell: &'a mut dyn FnMut(&str),
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Running<'a> {
    fn begin(
        store: &'a Store,
        author: &str,
        tell: &'a mut dyn FnMut(&str),
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Running<'a>, Problem> {
        let badge = request_lease::number()?;
        let request = MtuRequest { badge, author: author.to_owned(), since: now(), plan: None };
        let request_lease = RequestLease::new(&store.etcd)?;
        let Some(written) = store.begin_mtu(&request, request_lease.lease)? else {
            return Err(busy(store.mtu_request()?.document.as_ref()));
        };
        Ok(Running { store, request, written, request_lease, tell, stop })
    }

    fn plan(&mut self, plan: &MtuPlan) -> Result<(), Problem> {
        self.request.plan = Some(plan.clone());
        match self.store.plan_mtu(&self.request, self.request_lease.lease, self.written)? {
            true => Ok(()),
            false => Err(run_out()),
        }
    }

    /// Waits up to `timeout` until `is_enough` holds for the answers of all of these hosts. Returns
    /// the answers; `None` if the check was stopped.
    fn wait(
        &mut self,
        hosts: &[(Name, SocketAddr)],
        timeout: Duration,
        what: &str,
        is_enough: impl Fn(&MtuAnswer) -> bool,
    ) -> Result<Option<BTreeMap<Name, MtuAnswer>>, Problem> {
        let look = if hosts.len() > ALL_PAIRS { LOOK_AT_MANY } else { LOOK };
        let (begun, mut told) = (Instant::now(), usize::MAX);
        loop {
            if (self.stop)() {
                return Ok(None);
            }
            let answers = self.look()?;
            let have = hosts.iter().filter(|(name, _)| answers.get(name).is_some_and(&is_enough));
            let count = have.count();
            if count != told {
                (self.tell)(&format!("{count} of {} hosts are {what}", hosts.len()));
                told = count;
            }
            if count == hosts.len() || begun.elapsed() >= timeout {
                return Ok(Some(answers));
            }
            std::thread::sleep(look);
        }
    }

    fn look(&mut self) -> Result<BTreeMap<Name, MtuAnswer>, Problem> {
        let (store, badge) = (self.store, &self.request.badge);
        self.request_lease.read(|| store.mtu_answers(badge), self.tell, self.stop)
    }
}

fn busy(other: Option<&MtuRequest>) -> Problem {
    let by = other.map_or_else(
        || "one that has just ended".to_owned(),
        |it| format!("by {}, begun {}", it.author, crate::ago(it.since, now())),
    );
    Problem::new("another check of MTUs is running").seen(by).wanted("one check at a time").remedy(
        format!("wait until it has ended; one that was killed ends {} s later", LEASE.as_secs()),
    )
}

#[cfg(test)]
mod tests;
