//! A team's status as the control plane reads it.

use super::mask::Place;
use super::members::{MemberEntry, Members};
use super::rounds::Apart;
use super::state::{Algorithm, Counters};
use crate::link::{Link, LinkOffload};
use crate::{Nanos, Offloads};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::Mac;

/// Status of a team.
#[derive(Clone, Debug)]
pub struct TeamStatus {
    /// Algorithm that spreads frames toward the network.
    pub algorithm: Algorithm,
    /// Time for which a member must be up before it is used again.
    pub fail_back: Nanos,
    /// The members in the order of their places.
    pub members: Vec<MemberStatus>,
    /// The addresses that sent through the team, in the order of their bytes.
    pub homes: Vec<HomeStatus>,
}

/// Status of a member.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Name of the member's interface.
    pub name: String,
    /// Place of the member, which is the number of its ingress queue.
    pub place: Place,
    /// Whether the member carries frames.
    pub active: bool,
    /// Reason why the member carries no frames; `None` if it is up and waits for the fail-back
    /// time.
    pub trouble: Option<String>,
    /// Address of the member's interface.
    pub mac: Mac,
    /// Largest IP packet in bytes; 0 while the member is not open.
    pub mtu: u16,
    /// Speed in megabits per second, if the device reports it.
    pub speed: Option<u32>,
    /// Offloads of the member's egress.
    pub offloads: Offloads,
    /// Whether the device checks checksums of received frames.
    pub rx_checksum: bool,
    /// Features that the kernel does not support, as text for people.
    pub degraded: Vec<String>,
    /// VLANs of the group frames that arrived from outside.
    pub vlans: Vec<u16>,
    /// Broadcasts that another member received while this one received no group frame for a minute;
    /// `None` if it is not silent.
    pub silent: Option<u64>,
    /// Where it and most other members do not hear each other's probes.
    pub apart: Vec<Apart>,
    /// Counters since the team was opened.
    pub counters: MemberCounters,
}

/// Returns the reason why a member carries no frames; `None` if it does.
pub(super) fn idle_reason(active: bool, trouble: Option<&str>) -> Option<String> {
    let waits = "its link came back: it is used again after the fail-back time";
    (!active).then(|| trouble.unwrap_or(waits).to_owned())
}

/// An address and its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeStatus {
    /// The address.
    pub mac: Mac,
    /// Home member of the address.
    pub home: Place,
    /// The member that sends the address's frames now; `None` if none may.
    pub current: Option<Place>,
    /// Whether only the home may send the address's frames.
    pub pinned: bool,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a member.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct MemberCounters { $($(#[$doc])* pub $name: u64,)* }

        impl MemberCounters {
            fn read(counters: &Counters) -> MemberCounters {
                let get = |counter: &AtomicU64| counter.load(Relaxed);
                MemberCounters { $($name: get(&counters.$name),)* }
            }

            /// Returns each counter with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Frames taken into the switch.
    ingress_frames,
    /// Frames that left by the member.
    egress_frames,
    /// Bytes of the frames that left by the member.
    egress_bytes,
    /// Frames that left with the member's own address as source.
    replaced_sources,
    /// Refused frames with one of the team's addresses as source, which the switch outside sent
    /// back.
    reflected,
    /// Refused copies of frames that another member receives.
    copies,
    /// Refused frames for the member's own address.
    to_member,
    /// Frames that announced an address.
    announcements,
    /// Probes of teams that arrived; none is taken into the switch.
    probes,
}

impl MemberStatus {
    /// Returns the reason why the member carries no frames; `None` if it does.
    pub fn idle_reason(&self) -> Option<String> {
        idle_reason(self.active, self.trouble.as_deref())
    }

    /// Returns a member's status without what only its device tells: [`MemberStatus::ask`].
    pub(super) fn of(place: Place, entry: &MemberEntry, members: &Members) -> MemberStatus {
        let device = entry.device.as_ref();
        let (mac, vlans, counters) = members.shown(place);
        MemberStatus {
            name: entry.name.clone(),
            place,
            active: members.is_used(place),
            trouble: entry.trouble.clone(),
            mac,
            mtu: entry.mtu().unwrap_or_default(),
            speed: None,
            offloads: device.map_or(Offloads::empty(), |device| device.offloads),
            rx_checksum: false,
            degraded: device.map_or_else(Vec::new, |device| device.degraded.clone()),
            vlans,
            silent: members.silence.of(place),
            apart: members.rounds.apart(place),
            counters: counters.map_or_else(MemberCounters::default, MemberCounters::read),
        }
    }

    /// Adds what its device tells. The answers may wait for others of the host.
    pub(super) fn ask(&mut self, link: &Link) {
        self.speed = link.speed().ok().flatten();
        self.rx_checksum = link.offload(LinkOffload::RxCsum).unwrap_or(false);
    }
}
