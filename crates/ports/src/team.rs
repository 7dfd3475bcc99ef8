//! Switch Embedded Teaming: one port of 1 to 8 members, all of which carry frames.
//!
//! It is switch independent: the switches outside know nothing of the team and need no configuration. So an address must
//! be seen at one member only, its *home*, and whatever makes it be seen elsewhere is announced. Two algorithms spread what
//! leaves, in the words of `Set-VMSwitchTeam` ([`Algorithm`]).
//!
//! [`open`] makes a [`Device`] with one ingress queue for each of the eight places (`place`) and one egress queue that wraps
//! those of the members ([`TeamEgress`], [`TeamIngress`]), and a [`Team`] for the control plane. Workers share a `state`
//! without a lock. A thread watches the links (`watch`) and draws the conclusions (`members`). A member is any port of
//! one queue pair: [`Member::packet`] opens one, and a member of another kind is another such function.
//!
//! Nothing that came in at one member leaves at another: all members are one port, and the switch sends no frame back to
//! the port it came from.

mod announcer;
mod choose;
mod claims;
mod egress;
mod flowlets;
mod homes;
mod ingress;
mod mask;
mod member;
mod members;
mod mix;
mod place;
mod state;
mod stations;
mod status;
mod watch;

use crate::{Capabilities, Device, EgressQueue, IngressQueue, Nanos, Offloads, lock, namespace};
pub use egress::TeamEgress;
pub use flowlets::GAP;
pub use homes::Moved;
pub use ingress::TeamIngress;
pub use mask::{PLACES, Place};
pub use member::{Condition, Member, MemberError, MemberOpener};
use members::Members;
use place::Slot;
pub use state::Algorithm;
use state::State;
pub use status::{HomeStatus, MemberCounters, MemberStatus, TeamStatus};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use wire::Mac;

/// What to open.
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// The members' interfaces, 1 to 8.
    pub members: Vec<String>,
    /// The network namespace they are in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// How frames toward the network are spread.
    pub algorithm: Algorithm,
    /// How long a member whose link came back has to stay up before it is used again.
    pub fail_back: Duration,
}

impl TeamOptions {
    /// The algorithm `hyper-v-port`, in this namespace; a second until fail-back.
    pub fn new(members: &[&str]) -> TeamOptions {
        TeamOptions {
            members: members.iter().map(|&name| name.to_owned()).collect(),
            netns: None,
            algorithm: Algorithm::default(),
            fail_back: Duration::from_secs(1),
        }
    }
}

/// Why a team could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// No member opens.
    #[error("no member of the team opens: {}", reasons.join("; "))]
    NoMember {
        /// Why, for each.
        reasons: Vec<String>,
        /// Each lacks a privilege.
        denied: bool,
    },
    /// A member that was to be added does not open.
    #[error("{name} cannot be a member: {reason}")]
    Member {
        /// The interface.
        name: String,
        /// Why not.
        reason: String,
    },
    /// There are more than 8.
    #[error("a team has at most {PLACES} members, and {0} are wanted")]
    TooMany(usize),
    /// The namespace, or what the team itself needs of the kernel.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

/// What the queues and the control plane share.
pub(crate) struct Shared {
    state: State,
    slots: [Slot; PLACES],
    kernel_ns: u32,
}

impl Shared {
    fn slot(&self, place: Place) -> Option<&Slot> {
        self.slots.get(place.index())
    }
}

/// The control plane's handle of an open team. Dropping it ends the thread that watches the links.
pub struct Team {
    inner: Arc<Inner>,
    /// Where links are watched.
    watcher: Option<JoinHandle<()>>,
}

struct Inner {
    shared: Arc<Shared>,
    members: Mutex<Members>,
    live: Arc<Capabilities>,
    open: Box<MemberOpener>,
    closing: AtomicBool,
    start: Instant,
}

/// Opens a team. Members that do not open yet are tried again each second; one has to open now.
pub fn open(options: &TeamOptions, opener: Box<MemberOpener>) -> Result<(Device, Team), TeamError> {
    let links = namespace::within(options.netns.as_deref(), watch::subscribe)
        .and_then(|subscribed| subscribed)
        .map_err(|source| TeamError::Io { doing: "listen to changes of links", source })?;
    let (device, mut team) = assemble(options, opener)?;
    let inner = team.inner.clone();
    let watcher = thread::Builder::new()
        .name("team-links".to_owned())
        .spawn(move || watch::run(&inner, &links))
        .map_err(|source| TeamError::Io { doing: "start a thread", source })?;
    team.watcher = Some(watcher);
    Ok((device, team))
}

/// Makes a team without a thread, of members without a link: their condition is told by [`Team::note`].
pub fn assemble(
    options: &TeamOptions,
    opener: Box<MemberOpener>,
) -> Result<(Device, Team), TeamError> {
    if options.members.len() > PLACES {
        return Err(TeamError::TooMany(options.members.len()));
    }
    let opened: Vec<_> = options.members.iter().map(|name| (name, opener(name))).collect();
    if !opened.iter().any(|(_, member)| member.is_ok()) {
        let failures = opened.iter().filter_map(|(_, member)| member.as_ref().err());
        let denied = failures.clone().all(|failure| failure.denied);
        let reasons = failures.map(|failure| failure.reason.clone()).collect();
        return Err(TeamError::NoMember { reasons, denied });
    }
    let needs = |source| TeamError::Io { doing: "make an eventfd or an epoll", source };
    let mut slots = Vec::new();
    for _ in 0..PLACES {
        slots.push(Slot::new().map_err(needs)?);
    }
    let slots = slots.try_into().map_err(|_| needs(io::ErrorKind::Other.into()))?;
    let kernel_ns =
        opened.iter().filter_map(|(_, member)| Some(member.as_ref().ok()?.egress.kernel_ns()));
    let kernel_ns = kernel_ns.max().unwrap_or(0);
    let state = State::new(options.algorithm).map_err(needs)?;
    let shared = Arc::new(Shared { state, slots, kernel_ns });
    let fail_back = nanos(options.fail_back);
    let mut members = Members::new(shared.clone(), fail_back);
    for (name, member) in opened {
        members.seat(name, member.map_err(|failure| failure.reason));
    }
    let live = Arc::new(Capabilities::new(Offloads::empty(), 1));
    let ingress = (0..8).map(|place| TeamIngress::new(shared.clone(), Place(place)));
    let ingress: Vec<_> = ingress.collect::<Result<_, _>>().map_err(needs)?;
    let inner = Inner {
        shared: shared.clone(),
        members: Mutex::new(members),
        live: live.clone(),
        open: opener,
        closing: AtomicBool::new(false),
        start: Instant::now(),
    };
    inner.look();
    inner.negotiate();
    let device = Device {
        ingress: ingress.into_iter().map(|queue| IngressQueue::Team(Box::new(queue))).collect(),
        egress: vec![EgressQueue::Team(TeamEgress::new(shared))],
        live,
        mtu: inner.mtu(),
        mac: None,
    };
    Ok((device, Team { inner: Arc::new(inner), watcher: None }))
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Inner {
    /// The clock of the links.
    fn now(&self) -> Nanos {
        nanos(self.start.elapsed())
    }

    /// Looks at the links and closes what is used no more.
    fn look(&self) {
        let now = self.now();
        lock(&self.members).look(now);
        self.shared.slots.iter().for_each(Slot::close_retired);
    }

    /// Takes out what is known to be down.
    fn glance(&self) {
        let now = self.now();
        lock(&self.members).glance(now);
    }

    /// What all members take without help.
    fn negotiate(&self) {
        let members = lock(&self.members);
        let devices = members.seated().filter_map(|(_, seat)| seat.device.as_ref());
        let offloads = devices.map(|device| device.offloads).reduce(|one, other| one & other);
        self.live.set_offloads(offloads.unwrap_or_default());
    }

    /// Opens again the members that are not open, or whose device was made anew or has stalled.
    fn mend(&self) {
        let lost: Vec<(Place, String)> = {
            let members = lock(&self.members);
            let is_lost = |(_, seat): &(Place, &members::Seat)| {
                seat.device.as_ref().is_none_or(members::Opened::is_lost)
            };
            members
                .seated()
                .filter(is_lost)
                .map(|(place, seat)| (place, seat.name.clone()))
                .collect()
        };
        for (place, name) in lost {
            let member = (self.open)(&name).map_err(|failure| failure.reason);
            let mut members = lock(&self.members);
            // It may have left the team meanwhile.
            if members.place_of(&name) == Some(place) {
                members.install(place, member);
            }
        }
        self.negotiate();
    }

    /// The smallest of the members'.
    fn mtu(&self) -> u16 {
        let members = lock(&self.members);
        let mtus = members.seated().filter_map(|(_, seat)| seat.mtu());
        mtus.min().unwrap_or_default()
    }

    fn next_look(&self, now: Nanos) -> Option<Nanos> {
        lock(&self.members).due().map(|due| due.since(now))
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

impl Team {
    /// Makes these the members, if those that are new open: nothing changes if one of them does not.
    pub fn try_members(&self, names: &[String]) -> Result<(), TeamError> {
        if names.len() > PLACES {
            return Err(TeamError::TooMany(names.len()));
        }
        let opened = self.open_new(names);
        let failure = opened.iter().find_map(|(name, member)| Some((name, member.as_ref().err()?)));
        if let Some((name, reason)) = failure {
            return Err(TeamError::Member { name: name.clone(), reason: reason.clone() });
        }
        self.seat(names, opened);
        Ok(())
    }

    /// Makes these the members. Those that do not open yet are returned with the reason, and tried again each second.
    pub fn set_members(&self, names: &[String]) -> Vec<(String, String)> {
        let opened = self.open_new(names);
        let failed = |(name, member): &(String, Result<_, String>)| {
            Some((name.clone(), member.as_ref().err()?.clone()))
        };
        let failed = opened.iter().filter_map(failed).collect();
        self.seat(names, opened);
        failed
    }

    fn open_new(&self, names: &[String]) -> Vec<(String, Result<Member, String>)> {
        let is_new = |name: &&String| lock(&self.inner.members).place_of(name).is_none();
        let new: Vec<&String> = names.iter().filter(is_new).collect();
        let open = |name: &String| (self.inner.open)(name).map_err(|failure| failure.reason);
        new.into_iter().map(|name| (name.clone(), open(name))).collect()
    }

    fn seat(&self, names: &[String], opened: Vec<(String, Result<Member, String>)>) {
        let now = self.inner.now();
        let mut members = lock(&self.inner.members);
        let gone = members.seated().filter(|(_, seat)| !names.contains(&seat.name));
        let gone: Vec<Place> = gone.map(|(place, _)| place).collect();
        // First those that come, as far as there are places, so that addresses move once.
        let mut opened = opened.into_iter();
        let free = PLACES - members.seated().count();
        for (name, member) in opened.by_ref().take(free) {
            members.seat(&name, member);
        }
        members.look(now);
        for place in gone {
            members.leave(place, now);
        }
        for (name, member) in opened {
            members.seat(&name, member);
        }
        members.look(now);
        drop(members);
        self.inner.negotiate();
    }

    /// Pins addresses to members, by name, and frees all others. A member that the team has not is none of a pin's.
    pub fn pin(&self, pins: &[(Mac, String)]) {
        let now = self.inner.now();
        let mut members = lock(&self.inner.members);
        let place = |(mac, name): &(Mac, String)| Some((*mac, members.place_of(name)?));
        let pins: Vec<(Mac, Place)> = pins.iter().filter_map(place).collect();
        members.pin(&pins, now);
    }

    /// Spreads what leaves by this algorithm from now on.
    pub fn set_algorithm(&self, algorithm: Algorithm) {
        self.inner.shared.state.set_algorithm(algorithm);
    }

    /// How long a member has to be up before it is used again, from now on.
    pub fn set_fail_back(&self, fail_back: Duration) {
        lock(&self.inner.members).fail_back = nanos(fail_back);
        self.inner.shared.state.look();
    }

    /// Tells the condition of a member without a link, at a time of the caller's clock.
    pub fn note(&self, name: &str, condition: &Condition, now: Nanos) {
        let mut members = lock(&self.inner.members);
        if let Some(place) = members.place_of(name) {
            members.note(place, condition, now);
        }
        members.decide(now);
    }

    /// The team now.
    pub fn status(&self) -> TeamStatus {
        let members = lock(&self.inner.members);
        let state = &self.inner.shared.state;
        let algorithm = if state.is_dynamic() { Algorithm::Dynamic } else { Algorithm::HyperVPort };
        TeamStatus {
            algorithm,
            fail_back: members.fail_back,
            members: members
                .seated()
                .map(|(place, seat)| MemberStatus::of(place, seat, &members))
                .collect(),
            homes: members.homes(),
        }
    }

    /// Largest IP packet that all members carry, in bytes.
    pub fn mtu(&self) -> u16 {
        self.inner.mtu()
    }

    /// Why no member carries frames; `None`: one does.
    pub fn trouble(&self) -> Option<String> {
        let members = lock(&self.inner.members);
        if members.seated().any(|(place, _)| members.is_used(place)) {
            return None;
        }
        let reason = |(_, seat): (Place, &members::Seat)| {
            Some(format!("{}: {}", seat.name, seat.trouble.as_deref()?))
        };
        let reasons: Vec<String> = members.seated().filter_map(reason).collect();
        Some(format!("no member of the team carries frames ({})", reasons.join("; ")))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::Relaxed);
        self.inner.shared.state.look();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
