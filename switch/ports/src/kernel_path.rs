//! The kernel path: established flows between two interfaces of the host are carried by programs of
//! ours in the kernel, without a copy to this process and back.
//!
//! The switch decides. It [offers](Hook::offer) a flow after it has forwarded a frame of it, and the
//! programs carry later frames of that flow alone, exactly as the switch would have. Everything
//! else reaches the port's packet socket as before: first frames, handshakes, fragments, what has
//! no entry. docs/kernel-path.md says what is carried.
//!
//! - A [`KernelPath`] holds the programs and their maps. One serves a switch.
//! - A [`Hook`] is a port's attachment: the judge at its packet sockets, the carrier at its
//!   interface. Both go when it is dropped, or when the process ends in any way.
//! - **Decisions end at once.** Each hook has a generation; [`Hook::withdraw`] raises it, and all
//!   flows from and to the port are the switch's again. [`KernelPath::settle`] waits until no
//!   program runs that has seen the old one.
//! - **Decisions end by themselves** when [`KernelPath::extend_lease`] was not called for
//!   [`LEASE`]: a switch that hangs carries nothing.
//! - **Order.** A flow is carried from the start only if no frame of it can be under way through
//!   the switch, see [`Start`]; else it is pending until the port's ring was empty for a while.
//!
//! Two surprises. Frames carried into a container skip its host end's egress, so a capture there
//! misses them. And `redirect` into a TAP reaches whoever holds the TAP's descriptor: right for a
//! VMM's TAP, wrong for the kernel behind a TAP of ours, so TAP ports have no hook.

mod changes;
mod claims;
mod flow_key;
mod layout;
mod patience;
mod preemption;
pub(crate) mod program;
mod table;
pub mod trial;

pub use crate::bpf::types::PATH as TYPES;
use crate::bpf::{self, HashMap, Kind, MappedArray, PerProcessor};
use crate::link::Link;
use crate::namespace::helper;
use crate::packet::socket::{PacketSocket, namespace};
use crate::{closing, lock, veth};
pub use changes::Moment;
use changes::{Changed, Changes};
pub use flow_key::{FlowKey, Glance, TcpPhase};
use layout::{Flow, control, key};
use patience::Patience;
pub use preemption::preempts_softirqs;
use program::{Maps, Verdict};
use rustix::thread::{MembarrierCommand, membarrier};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
pub use table::{Carried, FlowReport, Tally};
use table::{Ends, Entry, Table};

/// How long flows are carried after the lease was last extended.
pub const LEASE: Duration = Duration::from_secs(2);

/// Most flows of a switch.
pub const FLOWS: usize = 1 << 17;

/// Most hooks of a switch.
pub const HOOKS: usize = 1 << 14;

/// Time for which a pending flow must have been quiet when its ring is empty: longer than the
/// kernel takes from the judge to the slot of the ring, which no task can interrupt.
const QUIET: Duration = Duration::from_micros(20);

/// How long a train that is too big is remembered.
const BIG: Duration = Duration::from_secs(10);

/// Most flows of a hook that are pending.
const PENDING: usize = 256;

/// The programs and maps of a switch.
#[derive(Clone)]
pub struct KernelPath(Arc<Shared>);

impl fmt::Debug for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelPath").finish_non_exhaustive()
    }
}

struct Shared {
    flows: HashMap<{ key::SIZE }>,
    slots: MappedArray,
    generations: MappedArray,
    control: MappedArray,
    verdict: PerProcessor,
    judge: OwnedFd,
    carrier: OwnedFd,
    /// Why the judge does not check what is said about checksums; `None`: it does.
    unchecked: Option<String>,
    table: Mutex<Table>,
    changes: Changes,
    patience: Mutex<Patience>,
    /// Whether no offer begins a lease.
    is_resting: AtomicBool,
    /// Whether the programs run only at a [`trial`]'s call, so that there is nothing to wait for.
    is_tried: AtomicBool,
}

/// When an offered flow may be carried from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once: the sender waits for an answer to the frame that was just delivered, such as TCP's
    /// SYN.
    Now,
    /// Once the flow was quiet while the port's ring was empty. Until then its frames may be under
    /// way in the ring, and would be overtaken.
    Quiet,
}

/// A flow that a port offers.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Its key.
    pub key: FlowKey,
    /// The VLAN inside the switch, for [`FlowReport`].
    pub vlan: u16,
    /// The longest IP packet that the receiving port takes, in bytes.
    pub mtu: u16,
    /// The moment before the flow was decided.
    pub moment: Moment,
    /// When it may be carried from.
    pub start: Start,
}

/// A port's attachment to the kernel path.
pub struct Hook {
    shared: Arc<Shared>,
    number: u16,
    interface: u32,
    /// The network namespace of the interface.
    namespace: u64,
    /// How frames are redirected to the port, see [`Flow::WAY`].
    way: u32,
    /// Flows from this port that are pending.
    pending: Mutex<Vec<u32>>,
    pending_count: AtomicUsize,
    /// Whether pending flows are possible: with one ring.
    may_wait: bool,
    /// Whether it is a station and no uplink.
    is_station: bool,
    /// When all decisions about the port ended last.
    changed: Changed,
    /// Until when trains [count](Hook::note_big_train) as too big, by the kernel's clock; 0 for never.
    big_until: AtomicU64,
    /// The carrier's link; `None` in a [`trial`].
    link: Option<OwnedFd>,
}

/// Why a port has no hook.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The carrier could not be attached.
    #[error("cannot attach the kernel path to {interface}: {source}: it needs Linux 6.6")]
    Attach {
        /// The interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A step before failed.
    #[error("cannot set up the kernel path at {interface}: {source}")]
    Prepare {
        /// The interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// There are [`HOOKS`] already.
    #[error("the kernel path has {HOOKS} ports already, the most there can be")]
    TooMany,
}

impl KernelPath {
    /// Loads the programs. Where the kernel or this process's privileges do not permit the judge that
    /// [checks](KernelPath::unchecked) what is said about checksums, it is one that does not.
    ///
    /// # Errors
    /// Fails with EPERM if the process lacks CAP_BPF or CAP_NET_ADMIN in the host's user namespace,
    /// else with the kernel's reason to refuse. Fails where the kernel [preempts](preempts_softirqs)
    /// softirqs.
    pub fn load() -> io::Result<KernelPath> {
        if let Some(seen) = preempts_softirqs() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, seen));
        }
        let flows = HashMap::create_sparse(FLOWS)?;
        let slots = MappedArray::create(Flow::SIZE, FLOWS)?;
        let generations = MappedArray::create(size_of::<u64>(), HOOKS)?;
        let control = MappedArray::create(control::SIZE, 1)?;
        let verdict = PerProcessor::create(Verdict::SIZE)?;
        let maps =
            [flows.as_fd(), slots.as_fd(), generations.as_fd(), control.as_fd(), verdict.as_fd()];
        let carrier = program::carrier(&Maps::of(maps)).ok_or(io::ErrorKind::InvalidInput)?;
        let carrier = bpf::load(Kind::Classifier, &carrier)?;
        let (judge, unchecked) = match helper::judge(maps) {
            Ok(judge) => (judge, None),
            Err(error) => (program::load_believing_judge(maps)?, Some(why_unchecked(&error))),
        };
        let table = Mutex::new(Table::new(FLOWS, HOOKS));
        Ok(KernelPath(Arc::new(Shared {
            flows,
            slots,
            generations,
            control,
            verdict,
            judge,
            carrier,
            unchecked,
            table,
            changes: Changes::new(),
            patience: Mutex::default(),
            is_resting: AtomicBool::new(false),
            is_tried: AtomicBool::new(false),
        })))
    }

    /// Attaches a port whose packet sockets receive what the interface receives. For `is_station`
    /// see [`PacketOptions`](crate::packet::PacketOptions).
    ///
    /// # Errors
    /// Fails if the kernel refuses a step; then the sockets see all frames as before.
    pub(crate) fn attach(
        &self,
        link: &Link,
        index: u32,
        sockets: &[&PacketSocket],
        is_station: bool,
    ) -> Result<Hook, HookError> {
        let interface = || link.name().to_owned();
        let refused = |source| HookError::Prepare { interface: interface(), source };
        let namespace = namespace(link.socket()).map_err(refused)?;
        let is_elsewhere = is_station
            && link.is_veth()
            && veth::is_other_end_elsewhere(link.name()).unwrap_or(false);
        let number = lock(&self.0.table).add_hook().ok_or(HookError::TooMany)?;
        let shared = self.0.clone();
        // First the carrier, which does nothing without a verdict.
        let link = bpf::attach_ingress(shared.carrier.as_fd(), index)
            .map_err(|source| HookError::Attach { interface: interface(), source })
            .inspect_err(|_| lock(&self.0.table).remove_hook(number))?;
        let hook = Hook {
            shared,
            number,
            interface: index,
            namespace,
            way: if is_elsewhere { Flow::TO_PEER } else { Flow::OUT },
            pending: Mutex::default(),
            pending_count: AtomicUsize::new(0),
            may_wait: sockets.len() == 1,
            is_station,
            changed: Changed::default(),
            big_until: AtomicU64::new(0),
            link: Some(link),
        };
        sockets
            .iter()
            .try_for_each(|socket| socket.judge(self.0.judge.as_fd()))
            .map_err(refused)?;
        Ok(hook)
    }

    /// Returns why it is not checked where a frame's sender says that its checksum is to be finished;
    /// `None`: it is. Without it a port may only offer flows from stations that cannot lie.
    pub fn unchecked(&self) -> Option<&str> {
        self.0.unchecked.as_deref()
    }

    /// Has nothing carried until the lease is [extended](KernelPath::extend_lease).
    pub fn rest(&self) {
        self.0.is_resting.store(true, Ordering::Relaxed);
        self.0.control_word(control::LEASE).store(0, Ordering::Relaxed);
    }

    /// Whether it rests.
    pub fn is_resting(&self) -> bool {
        self.0.is_resting.load(Ordering::Relaxed)
    }

    /// Lets flows be carried for [`LEASE`] from now on, if there are any, and unless too many frames
    /// were [lost](KernelPath::is_pausing).
    pub fn extend_lease(&self) {
        self.0.is_resting.store(false, Ordering::Relaxed);
        let now = now();
        let may_carry = lock(&self.0.patience).lasts(self.unmatched(), now);
        let until = if may_carry && self.flows() > 0 { now + nanos(LEASE) } else { 0 };
        self.0.control_word(control::LEASE).store(until, Ordering::Relaxed);
    }

    /// Returns whether nothing is carried for a while, at most an hour, because too many frames were
    /// [unmatched](KernelPath::unmatched).
    pub fn is_pausing(&self) -> bool {
        lock(&self.0.patience).is_pausing(now())
    }

    /// Waits until no program runs that may have seen what this process stored before.
    pub fn settle(&self) {
        if self.0.is_tried.load(Ordering::Relaxed) {
            return;
        }
        // Refused only by kernels that isolate processors (`nohz_full`): a program takes
        // microseconds.
        if membarrier(MembarrierCommand::Global).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the frames that the judge hid and the carrier did not get: another program at the
    /// interface took or changed them.
    pub fn unmatched(&self) -> u64 {
        self.0.control_word(control::UNMATCHED).load(Ordering::Relaxed)
    }

    /// Ends all flows from or to this station.
    pub fn forget_station(&self, mac: [u8; 6]) {
        // Before the table is locked: an offer that comes later sees it.
        self.0.changes.note_station(mac);
        let flows = lock(&self.0.table).forget_station(mac);
        flows.iter().for_each(|flow| self.0.state(*flow).store(Flow::OFF, Ordering::Relaxed));
    }

    /// Looks at `most` flows, in turn: counts what they carried, and removes those that are over,
    /// were idle for `idle`, or that `keep` says no to. Returns what it has seen. Called every
    /// second or so, with `most` so low that workers never wait long.
    pub fn sweep(
        &self,
        most: usize,
        idle: Duration,
        mut keep: impl FnMut(&FlowReport) -> bool,
    ) -> usize {
        let mut table = lock(&self.0.table);
        let (now, idle) = (now(), nanos(idle));
        let mut looked = 0;
        for _ in 0..most {
            let Some((place, entry)) = table.next() else { break };
            looked += 1;
            let report = self.0.report(place, &entry, now);
            table.tally(place, report.tally);
            if !report.is_in_force || report.quiet > idle || !keep(&report) {
                self.0.remove(&mut table, place, &entry, now);
            }
        }
        table.free_old(now);
        looked
    }

    /// Returns the flows in the table.
    pub fn flows(&self) -> usize {
        lock(&self.0.table).len()
    }

    /// Returns up to `most` flows that carried, with their counts.
    pub fn list(&self, most: usize) -> Vec<FlowReport> {
        let (table, now) = (lock(&self.0.table), now());
        let reports = table.all().map(|(place, entry)| self.0.report(place, entry, now));
        reports.filter(|report| report.tally.frames > 0).take(most).collect()
    }
}

impl Shared {
    fn word(&self, place: u32, offset: i16) -> &AtomicU64 {
        let word = place as usize * (Flow::SIZE / 8) + offset.unsigned_abs() as usize / 8;
        at(self.slots.words(), word)
    }

    fn state(&self, place: u32) -> &AtomicU64 {
        self.word(place, Flow::STATE)
    }

    fn control_word(&self, offset: i16) -> &AtomicU64 {
        at(self.control.words(), offset.unsigned_abs() as usize / 8)
    }

    fn generation(&self, hook: u16) -> &AtomicU64 {
        at(self.generations.words(), hook.into())
    }

    /// Ends a flow, and removes it from the table and the kernel's map.
    fn remove(&self, table: &mut Table, place: u32, entry: &Entry, now: u64) {
        self.state(place).store(Flow::OFF, Ordering::Relaxed);
        let _ = self.flows.remove(entry.key.0);
        table.remove(place, now);
    }

    /// Returns a flow as it is now.
    fn report(&self, place: u32, entry: &Entry, now: u64) -> FlowReport {
        let count = |offset| self.word(place, offset).load(Ordering::Relaxed);
        let state = self.state(place).load(Ordering::Relaxed);
        let tally = Tally {
            frames: count(Flow::FRAMES),
            bytes: count(Flow::BYTES),
            trains: count(Flow::TRAINS),
            train_segments: count(Flow::TRAIN_SEGMENTS),
        };
        let last = count(Flow::SEEN).max(entry.since).max(state);
        let is_current =
            |hook: u16, then| first(self.generation(hook).load(Ordering::Relaxed)) == then;
        FlowReport {
            key: entry.key,
            vlan: entry.vlan,
            from: entry.ends.from,
            to: entry.ends.to,
            tally,
            quiet: now.saturating_sub(last),
            age: now.saturating_sub(entry.since),
            is_carried: state == Flow::ON,
            is_in_force: state != Flow::OFF
                && is_current(entry.ends.from, entry.generations[0])
                && is_current(entry.ends.to, entry.generations[1]),
        }
    }
}

impl Hook {
    /// Returns its number, which [`FlowReport`] names.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the kernel path that it belongs to.
    pub fn path(&self) -> KernelPath {
        KernelPath(self.shared.clone())
    }

    /// Returns whether flows from here can be carried to that port: both are interfaces of one
    /// namespace, under the same programs.
    pub fn reaches(&self, to: &Hook) -> bool {
        Arc::ptr_eq(&self.shared, &to.shared)
            && self.namespace == to.namespace
            && self.interface != to.interface
    }

    /// Returns whether frames from here are [checked](KernelPath::unchecked).
    pub fn is_checked(&self) -> bool {
        self.shared.unchecked.is_none()
    }

    /// Returns the present moment.
    #[inline]
    pub fn moment(&self) -> Moment {
        self.shared.changes.now()
    }

    fn generation(&self) -> u32 {
        first(self.shared.generation(self.number).load(Ordering::Acquire))
    }

    /// Ends all flows from and to the port. In force after [`KernelPath::settle`].
    pub fn withdraw(&self) {
        // In this order: an offer that reads the new generation also sees that it is too late.
        self.shared.changes.note(&self.changed);
        let next = |word| Some(pair(first(word).wrapping_add(1), 0));
        let generation = self.shared.generation(self.number);
        let _ = generation.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }

    /// Notes that a train came from the port that is longer than any the programs carry: for a while
    /// its flows are the switch's, or their shorter trains would overtake.
    pub fn note_big_train(&self) {
        let was_noted = self.makes_big_trains();
        self.big_until.store(now() + nanos(BIG), Ordering::Relaxed);
        if !was_noted {
            self.withdraw();
        }
    }

    /// Returns whether such a train came lately.
    pub fn makes_big_trains(&self) -> bool {
        let until = self.big_until.load(Ordering::Relaxed);
        until > 0 && now() < until
    }

    /// Has a flow of this port carried to another. Returns whether the flow is now in the table. It
    /// is not if the table is busy, or full for this port, or if since [`Offer::moment`] decisions
    /// about one of the ports have ended or one of the stations has moved: a later frame is offered
    /// again.
    pub fn offer(&self, to: &Hook, offer: Offer) -> bool {
        let Offer { key, vlan, mtu, moment, start } = offer;
        if !self.reaches(to) || start == Start::Quiet && !self.may_wait {
            return false;
        }
        let Ok(mut table) = self.shared.table.try_lock() else { return false };
        let mut pending = lock(&self.pending);
        if start == Start::Quiet && pending.len() >= PENDING {
            return false;
        }
        let generations = [self.generation(), to.generation()];
        let has_ended = [self, to].iter().any(|hook| hook.changed.is_after(moment));
        if has_ended || self.shared.changes.has_moved(key.stations(), moment) {
            return false;
        }
        let since = now();
        let ends = Ends { from: self.number, to: to.number };
        // A flood from behind an uplink leaves room for the flows of others that it has.
        let payer = if self.is_station { self.number } else { to.number };
        let entry = Entry::new(key.at(self.interface), ends, payer, generations, vlan, since);
        let Some(place) = table.insert(entry) else { return false };
        let shared = &self.shared;
        let store = |offset, value| shared.word(place, offset).store(value, Ordering::Relaxed);
        store(Flow::FROM, pair(self.number.into(), to.number.into()));
        store(Flow::FROM_GENERATION, pair(generations[0], generations[1]));
        store(Flow::INTERFACE, pair(to.interface, to.way));
        store(Flow::LONGEST, pair(u32::from(mtu) + ETHERNET_HEADER, 0));
        Flow::COUNTS.iter().for_each(|count| store(*count, 0));
        let state = if start == Start::Now { Flow::ON } else { since };
        // The kernel finds the place only by the insertion, a system call.
        shared.state(place).store(state, Ordering::Release);
        if shared.flows.insert(entry.key.0, place).is_err() {
            table.remove(place, since);
            return false;
        }
        if shared.control_word(control::LEASE).load(Ordering::Relaxed) == 0
            && table.len() == 1
            && !self.path().is_resting()
        {
            drop(table);
            self.path().extend_lease();
        }
        if start == Start::Quiet {
            pending.push(place);
            self.pending_count.store(pending.len(), Ordering::Relaxed);
        }
        true
    }

    /// Returns whether a flow of this port is carried. `false` also if the table is busy.
    pub fn carries(&self, key: FlowKey) -> bool {
        let Ok(table) = self.shared.table.try_lock() else { return false };
        let place = table.find(&key.at(self.interface));
        place.is_some_and(|place| self.shared.state(place).load(Ordering::Relaxed) == Flow::ON)
    }

    /// Returns a flow of this port as it is now, if it is in the table.
    pub fn report(&self, key: FlowKey) -> Option<FlowReport> {
        let table = lock(&self.shared.table);
        let place = table.find(&key.at(self.interface))?;
        Some(self.shared.report(place, table.get(place)?, now()))
    }

    /// Returns the time before a look at the ring, if flows of this port are pending.
    #[inline]
    pub fn begin_look(&self) -> Option<Look> {
        (self.pending_count.load(Ordering::Relaxed) > 0).then(|| Look(now()))
    }

    /// Has pending flows carried that were quiet when the ring was found empty, in a look begun
    /// before.
    #[cold]
    pub fn found_empty(&self, look: Look) {
        let mut pending = lock(&self.pending);
        pending.retain(|&place| {
            let state = self.shared.state(place);
            let last = state.load(Ordering::Relaxed);
            if last == Flow::OFF || last == Flow::ON {
                return false;
            }
            // Compared, because the judge may have seen a frame since.
            last + nanos(QUIET) >= look.0
                || state
                    .compare_exchange(last, Flow::ON, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
        });
        self.pending_count.store(pending.len(), Ordering::Relaxed);
    }

    /// Ends a flow of this port, which is over.
    pub fn end(&self, key: FlowKey) {
        let Ok(mut table) = self.shared.table.try_lock() else { return };
        let key = key.at(self.interface);
        if let Some(place) = table.find(&key)
            && let Some(entry) = table.get(place).copied()
        {
            let now = now();
            table.tally(place, self.shared.report(place, &entry, now).tally);
            self.shared.remove(&mut table, place, &entry, now);
        }
    }

    /// Returns what was carried from and to the port, as of the last sweep.
    pub fn carried(&self) -> Carried {
        lock(&self.shared.table).carried(self.number)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.link.iter().for_each(|link| closing::collect(link.as_fd()));
        self.withdraw();
        lock(&self.shared.table).remove_hook(self.number);
    }
}

/// The time of a look at a ring.
#[derive(Clone, Copy)]
pub struct Look(u64);

const ETHERNET_HEADER: u32 = 14;

/// Returns why the judge that checks was refused, for people.
fn why_unchecked(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "the kernel does not describe its types".to_owned(),
        Some(libc::ENOSYS) => "the kernel's types are not as expected".to_owned(),
        Some(libc::EPERM | libc::EACCES) => "a privilege is missing".to_owned(),
        _ => format!("the kernel refused the program: {error}"),
    }
}

/// Returns the kernel's monotonic clock, as programs read it.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[allow(clippy::cast_possible_truncation, reason = "seconds")]
const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Makes the word in which two numbers of 4 bytes are one behind the other.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn first(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Returns a word of a map. Places come from the table, which knows the map's size.
fn at(words: &[AtomicU64], place: usize) -> &AtomicU64 {
    static NONE: AtomicU64 = AtomicU64::new(0);
    debug_assert!(place < words.len(), "a place of the map");
    words.get(place).unwrap_or(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon of the packaged unit has neither CAP_PERFMON nor, once it has restricted itself,
    /// CAP_SYS_ADMIN: its helper loads the judge.
    #[test]
    fn the_programs_load_or_the_kernel_says_that_a_privilege_is_missing() {
        match KernelPath::load() {
            Ok(path) => {
                let missing = ["the kernel does not describe its types", "a privilege is missing"];
                let reason = path.unchecked();
                assert!(reason.is_none_or(|reason| missing.contains(&reason)), "{reason:?}");
            }
            Err(error) => {
                let wanted = match preempts_softirqs() {
                    Some(_) => io::ErrorKind::Unsupported,
                    None => io::ErrorKind::PermissionDenied,
                };
                assert_eq!(error.kind(), wanted, "{error}");
                eprintln!("skipped: needs CAP_BPF, CAP_NET_ADMIN and no PREEMPT_RT");
            }
        }
    }
}
