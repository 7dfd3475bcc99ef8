//! The state of a port that workers and the control plane both change: the held address, up or
//! down, and the events about it.

use crate::status::{HealthEvent, PortState};
use ports::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use wire::Mac;

/// The address that the MAC-spoofing guard holds a port to that has no configured one: the first it
/// sent from.
#[derive(Default)]
pub(crate) struct HeldMac(AtomicU64);

impl HeldMac {
    /// A bit beside the 48 of an address, so that 0 means none.
    const HELD: u64 = 1 << 48;

    /// Returns the held address. If there is none, `mac` (see [`Mac::to_u64`]) is held from now on.
    pub(crate) fn get_or_hold(&self, mac: u64) -> u64 {
        // Several workers may see a first frame at once; one of them wins.
        let raced =
            self.0.compare_exchange(0, mac | Self::HELD, Ordering::Relaxed, Ordering::Relaxed);
        raced.map_or_else(|held| held ^ Self::HELD, |_| mac)
    }

    pub(crate) fn get(&self) -> Option<Mac> {
        let held = self.0.load(Ordering::Relaxed);
        (held != 0).then(|| Mac::from_u64(held))
    }

    pub(crate) fn set(&self, mac: Option<Mac>) {
        self.0.store(mac.map_or(0, |mac| mac.to_u64() | Self::HELD), Ordering::Relaxed);
    }
}

/// A port's state. Workers change it when a device fails, the control plane when a link goes down;
/// all read it.
#[derive(Default)]
pub(crate) struct StateCell {
    /// The kind of `state`, such as [`StateCell::UP`], for readers that ask once a burst.
    kind: AtomicU8,
    state: Mutex<PortState>,
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

    pub(crate) fn get(&self) -> PortState {
        lock(&self.state).clone()
    }

    /// Sets the state, and returns whether it differs from the one before. A broken port stays
    /// broken.
    pub(crate) fn set(&self, state: PortState) -> bool {
        let mut current = lock(&self.state);
        if *current == state || matches!(*current, PortState::Broken(_)) {
            return false;
        }
        self.kind.store(Self::kind(&state), Ordering::Relaxed);
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
