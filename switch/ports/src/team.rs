//! Switch Embedded Teaming: one port of 1 to 8 members, all of which carry frames.
//!
//! A team is switch independent: the physical switches need no configuration for it. So the network
//! must see an address at only one member, its *home*, and every change of it is announced. Two
//! algorithms spread egress frames, named as in `Set-VMSwitchTeam` ([`Algorithm`]).
//!
//! [`open`] makes a [`Device`] and a [`Team`], the handle of the control plane. The device has one
//! ingress queue for each of the eight places (`place`), and one egress queue that wraps those of
//! the members ([`TeamIngress`], [`TeamEgress`]). Workers share a `state` without a lock. A thread
//! watches the links (`watch`), decides which members carry frames (`members`), and lets members
//! probe each other (`rounds`). A member is any port of one queue pair: [`Member::packet`] opens
//! one, and another kind of member needs another such function.
//!
//! No frame passes from one member to another: all members are one port, and the switch never sends
//! a frame back to its ingress port.

mod age;
mod announcer;
mod choose;
mod claims;
mod egress;
mod flooded;
mod flowlets;
mod gate;
mod handle;
mod home_members;
mod ingress;
mod mask;
mod member;
mod members;
mod mix;
mod neighbour_cache;
mod place;
mod probe;
mod probes;
mod rounds;
mod sent;
mod silence;
mod state;
mod status;
mod watch;

use crate::{Capabilities, Device, EgressQueue, IngressQueue, Offloads, side_by_side};
pub use egress::TeamEgress;
pub use flowlets::GAP;
use handle::Inner;
pub use handle::Team;
pub use home_members::Moved;
pub use ingress::TeamIngress;
pub use mask::{PLACES, Place};
pub use member::{Condition, Member, MemberError, MemberOpener};
use members::Members;
use place::Slot;
pub use rounds::Apart;
pub use state::Algorithm;
use state::State;
pub use status::{HomeStatus, MemberCounters, MemberStatus, TeamStatus};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// The members' interfaces, 1 to 8.
    pub members: Vec<String>,
    /// The network namespace they are in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Algorithm that spreads frames toward the network.
    pub algorithm: Algorithm,
    /// How long a returned link must stay up before its member is used again.
    pub fail_back: Duration,
}

impl TeamOptions {
    /// Returns options for the algorithm `hyper-v-port` in this namespace, with one second until
    /// fail-back.
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
    /// None of the members opens.
    #[error("no member of the team opens: {}", reasons.join("; "))]
    NoMember {
        /// The reason for each member.
        reasons: Vec<String>,
        /// Whether each member lacks a privilege.
        denied: bool,
    },
    /// A member to be added does not open.
    #[error("{name} cannot be a member: {reason}")]
    Member {
        /// The interface.
        name: String,
        /// Why it does not open.
        reason: String,
    },
    /// More than 8 members were asked for.
    #[error("a team has at most {PLACES} members, and {0} are wanted")]
    TooMany(usize),
    /// The kernel refused the namespace, or another thing that the team itself needs.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The error of the step.
        #[source]
        source: io::Error,
    },
}

/// State that the queues and the control plane share.
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

/// Opens a team. Members that do not open yet are tried again each second.
///
/// # Errors
///
/// Fails if no member opens, if there are more than 8, or if the links cannot be watched.
pub fn open(options: &TeamOptions, opener: Box<MemberOpener>) -> Result<(Device, Team), TeamError> {
    let links = watch::subscribe(options.netns.as_deref())
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

/// Makes a team without a thread, of members without a link: [`Team::note`] sets their condition.
///
/// # Errors
/// Fails if no member opens, or if there are more than 8.
pub fn assemble(
    options: &TeamOptions,
    opener: Box<MemberOpener>,
) -> Result<(Device, Team), TeamError> {
    if options.members.len() > PLACES {
        return Err(TeamError::TooMany(options.members.len()));
    }
    let opened = side_by_side::map(&options.members, |name| opener(name));
    let opened: Vec<_> = options.members.iter().zip(opened).collect();
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
    let fail_back = options.fail_back.into();
    let mut members = Members::new(shared.clone(), fail_back);
    for (name, member) in opened {
        members.add(name, member.map_err(|failure| failure.reason));
    }
    let live = Arc::new(Capabilities::of_kernel(Offloads::empty(), 1));
    let ingress = (0..8).map(|place| TeamIngress::new(shared.clone(), Place(place)));
    let ingress: Vec<_> = ingress.collect::<Result<_, _>>().map_err(needs)?;
    let inner = Inner::new(shared.clone(), members, live.clone(), opener);
    inner.look();
    inner.negotiate();
    let device = Device {
        ingress: ingress.into_iter().map(|queue| IngressQueue::Team(Box::new(queue))).collect(),
        egress: vec![EgressQueue::Team(TeamEgress::new(shared))],
        live,
        mtu: inner.mtu(),
        mac: None,
        hook: None,
    };
    Ok((device, Team { inner: Arc::new(inner), watcher: None }))
}
