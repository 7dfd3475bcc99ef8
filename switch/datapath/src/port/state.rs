//! The state of a port that workers and the control plane both change: the held address, up or
//! down, and the events about it.

use crate::status::{HealthEvent, PortState};
use ports::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use wire::Mac;

/// The address that the MAC-spoofing guard holds a port to that has no configured one: the first
/// that its guest sent from.
///
/// It is stored with the number of the guest ([`ports::Capabilities::guest`]) and lapses with it,
/// so no one has to decide that a guest has left. It is written under the writers' lock of the
/// address table only ([`change_owners`](super::macs::MacTable::change_owners)), and read anywhere.
#[derive(Default)]
pub(crate) struct HeldMac(AtomicU64);

impl HeldMac {
    /// A bit beside the 48 of an address, so that 0 means none.
    const HELD: u64 = 1 << 48;
    const NUMBER: u32 = 49;

    /// Returns the word of an address that this guest holds. Of the guest's number 15 bits are
    /// kept: a lapsed word is swept within a second, and 16,000 guests do not connect in that time.
    fn word(mac: u64, guest: u64) -> u64 {
        guest << Self::NUMBER | Self::HELD | mac
    }

    /// Returns the address that this guest is held to. If there is none, it is `mac` (see
    /// [`Mac::to_u64`]) from now on.
    pub(crate) fn get_or_hold(&self, mac: u64, guest: u64) -> u64 {
        let held = self.get(guest).map(Mac::to_u64);
        held.unwrap_or_else(|| {
            self.0.store(Self::word(mac, guest), Ordering::Relaxed);
            mac
        })
    }

    /// Returns the address that this guest is held to.
    #[inline]
    pub(crate) fn get(&self, guest: u64) -> Option<Mac> {
        let word = self.0.load(Ordering::Relaxed);
        let is_its = word != 0 && word >> Self::NUMBER == (guest << Self::NUMBER) >> Self::NUMBER;
        is_its.then(|| Mac::from_u64(word))
    }

    pub(crate) fn release(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether an address is stored that another guest than this was held to.
    pub(crate) fn has_lapsed(&self, guest: u64) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.get(guest).is_none()
    }
}

/// A port's state. Workers change it when a device fails, the control plane when a link goes down;
/// all read it.
#[derive(Default)]
pub(crate) struct StateCell {
    /// The kind of `state`, such as [`StateCell::UP`], for readers that ask once a burst.
    kind: AtomicU8,
    /// How often the port has gone down or broken.
    downs: AtomicU16,
    state: Mutex<(PortState, u64)>,
}

impl StateCell {
    const UP: u8 = 0;
    const DOWN: u8 = 1;
    const BROKEN: u8 = 2;

    fn kind(state: &PortState) -> u8 {
        match state {
            PortState::Up => Self::UP,
            PortState::Down(_) => Self::DOWN,
            PortState::Broken(_) => Self::BROKEN,
        }
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Self::BROKEN
    }

    pub(crate) fn is_down(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Self::DOWN
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Self::UP
    }

    /// Returns how often the port has gone down or broken.
    #[inline]
    pub(crate) fn downs(&self) -> u16 {
        self.downs.load(Ordering::Relaxed)
    }

    /// Returns the state, and how often it has changed.
    pub(crate) fn get(&self) -> (PortState, u64) {
        lock(&self.state).clone()
    }

    /// Sets the state, and returns whether it differs from the one before. A broken port stays
    /// broken. If the decision was made on an earlier state, which had changed `decided_on` times,
    /// nothing changes.
    pub(crate) fn set(&self, state: PortState, decided_on: Option<u64>) -> bool {
        let (current, changes) = &mut *lock(&self.state);
        let is_late = decided_on.is_some_and(|known| known != *changes);
        if is_late || *current == state || matches!(*current, PortState::Broken(_)) {
            return false;
        }
        self.kind.store(Self::kind(&state), Ordering::Relaxed);
        if state != PortState::Up {
            self.downs.fetch_add(1, Ordering::Relaxed);
        }
        *changes += 1;
        *current = state;
        true
    }
}

/// Health events, until the control plane fetches them.
#[derive(Default)]
pub(crate) struct Events(Mutex<VecDeque<HealthEvent>>);

impl Events {
    /// Most events kept; older ones go first.
    const KEPT: usize = 1024;

    pub(crate) fn push(&self, event: HealthEvent) {
        let mut events = lock(&self.0);
        if events.contains(&event) {
            return;
        }
        if events.len() == Self::KEPT {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub(crate) fn take(&self) -> Vec<HealthEvent> {
        lock(&self.0).drain(..).collect()
    }
}
