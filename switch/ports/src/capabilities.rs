//! The capabilities of a port's other side. They change while the port is open, because a guest
//! that starts, resets or reboots renegotiates offloads and queues.
//!
//! The port writes them, and workers read them once per burst. A frame fitted to older capabilities
//! still reaches the egress queue, which drops it if the other side no longer takes it.

use crate::{Announced, Offloads, lock};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use vhost_user::GuestSettings;

/// The writer of a port's virtio-net headers: the one fact by which its claims are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Speaker {
    /// A guest, held to what it negotiated. A guest is also what no other is known of.
    #[default]
    Guest,
    /// This host's kernel. It negotiates nothing: whatever it has merged arrives. Its word is
    /// checked for what is safe and bounded in work, and otherwise believed. It is not trusted
    /// more: what a container or a TAP device's guest claims passes through the kernel.
    Kernel,
}

/// Number of the settings of any guest that were set last: no two have the same, so that a copy of
/// one port's is never taken for another's.
static LAST_SETTINGS: AtomicU32 = AtomicU32::new(0);

/// A number that tells whether a guest's settings have changed. It tells the facts that are asked
/// for often, without a look at the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SettingsVersion(u32);

impl SettingsVersion {
    /// Bits for what is set.
    const STEERS: u32 = 1;
    const FILTERS: u32 = 2;

    fn next(settings: &GuestSettings) -> SettingsVersion {
        let number = LAST_SETTINGS.fetch_add(1, Relaxed) << 2;
        let steers = if settings.table.is_some() { Self::STEERS } else { 0 };
        let filters = if settings.filter.is_some() { Self::FILTERS } else { 0 };
        SettingsVersion(number | steers | filters)
    }

    /// Returns whether the guest has a table of its own.
    #[inline]
    pub fn steers(self) -> bool {
        self.0 & Self::STEERS != 0
    }

    /// Returns whether the guest does not want all frames.
    #[inline]
    pub fn filters(self) -> bool {
        self.0 & Self::FILTERS != 0
    }
}

/// Capabilities that a port's [`Device`](crate::Device) and its opener share. The values are
/// independent, so loads and stores are relaxed.
#[derive(Debug)]
pub struct Capabilities {
    /// Bits of [`Offloads`].
    offloads: AtomicU8,
    queues: AtomicU16,
    speaker: Speaker,
    /// Most datagrams of a UDP train.
    datagrams: AtomicU16,
    /// Counts what may have put another guest at the other side.
    guest: AtomicU64,
    /// The [`SettingsVersion`] of `settings`.
    settings_version: AtomicU32,
    /// `None` until there are some.
    settings: Mutex<Option<Arc<GuestSettings>>>,
    /// Passed the other way: written by the switch, read by the port.
    announced: Mutex<Announced>,
    /// Frames that a worker takes as if the other side had sent them.
    announcement: Mutex<Vec<Vec<u8>>>,
    /// Whether there are any, so that a turn without one takes no lock.
    is_announcing: AtomicBool,
}

impl Capabilities {
    /// Returns capabilities of a port that takes `offloads` on `queues` egress queues.
    pub const fn new(offloads: Offloads, queues: u16) -> Capabilities {
        let announced = Mutex::new(Announced { tagged: Vec::new(), addresses: Vec::new() });
        let (offloads, queues) = (AtomicU8::new(offloads.bits()), AtomicU16::new(queues));
        let (speaker, datagrams) = (Speaker::Guest, AtomicU16::new(u16::MAX));
        Capabilities {
            offloads,
            queues,
            speaker,
            datagrams,
            guest: AtomicU64::new(0),
            settings_version: AtomicU32::new(0),
            settings: Mutex::new(None),
            announced,
            announcement: Mutex::new(Vec::new()),
            is_announcing: AtomicBool::new(false),
        }
    }

    /// Returns capabilities of a port with this host's kernel on its other side.
    pub const fn of_kernel(offloads: Offloads, queues: u16) -> Capabilities {
        let mut capabilities = Capabilities::new(offloads, queues);
        capabilities.speaker = Speaker::Kernel;
        capabilities
    }

    /// Returns who writes the virtio-net headers of its frames.
    #[inline]
    pub const fn speaker(&self) -> Speaker {
        self.speaker
    }

    /// Returns the most datagrams of a UDP train that its egress takes.
    #[inline]
    pub fn datagrams(&self) -> u16 {
        self.datagrams.load(Relaxed)
    }

    /// Sets the most datagrams of a UDP train that its egress takes from now on.
    pub fn set_datagrams(&self, most: u16) {
        self.datagrams.store(most, Relaxed);
    }

    /// Returns the offloads that its egress takes.
    #[inline]
    pub fn offloads(&self) -> Offloads {
        Offloads::from_bits_truncate(self.offloads.load(Relaxed))
    }

    /// Sets the offloads that its egress takes from now on.
    pub fn set_offloads(&self, offloads: Offloads) {
        self.offloads.store(offloads.bits(), Relaxed);
    }

    /// Returns the number of egress queues in use, the first ones of the device: as many as the
    /// other side serves. 0: it is not ready.
    #[inline]
    pub fn queues(&self) -> u16 {
        self.queues.load(Relaxed)
    }

    /// Sets the number of egress queues that the other side serves from now on.
    pub fn set_queues(&self, queues: u16) {
        self.queues.store(queues, Relaxed);
    }

    /// Returns the number of the guest at the other side. A frame that is taken from the port was
    /// sent by the guest of this number: it changes only while no queue of the port is in use.
    #[inline]
    pub fn guest(&self) -> u64 {
        self.guest.load(Relaxed)
    }

    /// Notes that from now on another guest may be at the other side.
    pub fn replace_guest(&self) {
        self.guest.fetch_add(1, Relaxed);
    }

    /// Returns a number that changes with the guest's settings.
    #[inline]
    pub fn settings_version(&self) -> SettingsVersion {
        SettingsVersion(self.settings_version.load(Relaxed))
    }

    /// Returns what the guest has set by commands about the frames that it receives, and its
    /// version.
    pub fn guest_settings(&self) -> (SettingsVersion, Option<Arc<GuestSettings>>) {
        let settings = lock(&self.settings);
        (self.settings_version(), settings.clone())
    }

    /// Sets what the guest has set from now on.
    pub fn set_guest_settings(&self, settings: Arc<GuestSettings>) {
        let mut place = lock(&self.settings);
        self.settings_version.store(SettingsVersion::next(&settings).0, Relaxed);
        let old = place.replace(settings);
        drop(place);
        drop(old);
    }

    /// Returns the VLANs and addresses with which the port's guest is announced.
    pub fn announced(&self) -> Announced {
        lock(&self.announced).clone()
    }

    /// Sets the VLANs and addresses with which the port's guest is announced from now on.
    pub fn set_announced(&self, announced: Announced) {
        *lock(&self.announced) = announced;
    }

    /// Leaves frames for the next turn of the port's first queue to take as if the other side had
    /// sent them. They replace those that are still there. For ports whose other side does not say
    /// when it begins to run; a vhost-user session knows, and announces its guest itself.
    pub fn announce(&self, frames: Vec<Vec<u8>>) {
        let mut announcement = lock(&self.announcement);
        self.is_announcing.store(!frames.is_empty(), Relaxed);
        *announcement = frames;
    }

    /// Returns whether some of these frames are still there.
    #[inline]
    pub fn is_announcing(&self) -> bool {
        self.is_announcing.load(Relaxed)
    }

    /// Takes at most so many of these frames.
    #[inline]
    pub fn take_announcement(&self, most: usize) -> Vec<Vec<u8>> {
        if !self.is_announcing() {
            return Vec::new();
        }
        let mut announcement = lock(&self.announcement);
        let most = most.min(announcement.len());
        let taken = announcement.drain(..most).collect();
        self.is_announcing.store(!announcement.is_empty(), Relaxed);
        taken
    }
}
