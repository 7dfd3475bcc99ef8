//! Offers flows to the kernel path, once a frame of them goes the way that later ones would.

use crate::frame::Frame;
use crate::frame::headers::Headers;
use crate::port::carry::{why_slow_from, why_slow_to};
use crate::port::view::Port;
use crate::settings::vlan::Tagging;
use crate::turn::Turn;
use crate::turn::outbox::{Cause, Run};
use ports::Nanos;
use ports::kernel_path::{Glance, Hook, Moment, Offer, Start, TcpPhase};
use std::hash::{BuildHasher, RandomState};
use wire::{Kind, Traits};

/// Most frames of a list that are looked at for flows under way. Connections that begin or end are
/// always seen.
const LOOKS: usize = 4;

/// The longest frame that the kernel's programs carry for both IP versions: longer packets (BIG TCP)
/// have no length where they look for it.
const LONGEST: u32 = 14 + 0xffff;

/// Flows under way that were seen lately, by worker: one is offered when it is seen in a second
/// turn, and then once a second. A flow of one frame is never offered.
pub(crate) struct Recent {
    /// Keyed at random: guests choose the flows.
    hasher: RandomState,
    /// The hash of the flow in each place, and when it may be offered.
    places: Box<[(u64, Nanos)]>,
}

impl Recent {
    const PLACES: usize = 1024;

    pub(crate) fn new() -> Recent {
        Recent {
            hasher: RandomState::new(),
            places: vec![(0, Nanos::default()); Recent::PLACES].into(),
        }
    }

    /// Notes that a flow is seen in a turn. Returns whether it is to be offered.
    fn is_due(&mut self, flow: &impl std::hash::Hash, now: Nanos) -> bool {
        let hash = self.hasher.hash_one(flow);
        let place = usize::try_from(hash % Recent::PLACES as u64).unwrap_or_default();
        let Some((known, due)) = self.places.get_mut(place) else { return false };
        if *known != hash {
            (*known, *due) = (hash, now + Nanos(1));
            return false;
        }
        let is_due = now >= *due;
        if is_due {
            *due = now + Nanos::SECOND;
        }
        is_due
    }
}

impl Turn<'_> {
    /// Offers the flows of a list that goes to one port. `moment` was read before the frames were
    /// decided.
    #[cold]
    #[inline(never)]
    pub(crate) fn offer_flows(
        &self,
        list: &[Run],
        frames: &[Frame],
        headers: &Headers,
        to: &Port,
        moment: Moment,
        recent: &mut Recent,
    ) {
        let hooks = (self.from.shared.hook.as_deref(), to.shared.hook.as_deref());
        let (Some(from_hook), Some(to_hook)) = hooks else { return };
        let addressed = || {
            let addressed = list.iter().filter(|run| run.cause == Cause::Addressed);
            addressed.filter_map(|run| frames.get(run.places())).flatten()
        };
        if addressed().any(|frame| frame.len > LONGEST) {
            return from_hook.note_big_train();
        }
        if !from_hook.reaches(to_hook)
            || why_slow_from(self.from).is_some()
            || why_slow_to(to).is_some()
        {
            return;
        }
        let mut looks = 0;
        for frame in addressed() {
            let header = headers.get(frame.header);
            let is_edge = frame.parsed.kind == Kind::Tcp && is_edge(header, frame);
            if !is_edge && looks >= LOOKS {
                continue;
            }
            looks += usize::from(!is_edge);
            if !frame.parsed.traits.intersects(Traits::VLAN | Traits::OLD_TAG)
                && to.settings.vlan.tagging(frame.vlan) == Some(Tagging::Untagged)
                && let Some(glance) = Glance::read(header)
            {
                self.offer_flow(
                    glance,
                    frame,
                    (from_hook, to_hook),
                    to.settings.mtu,
                    moment,
                    recent,
                );
            }
        }
    }

    fn offer_flow(
        &self,
        glance: Glance,
        frame: &Frame,
        (from, to): (&Hook, &Hook),
        mtu: u16,
        moment: Moment,
        recent: &mut Recent,
    ) {
        let is_bare = frame.parsed.payload_len() == 0;
        let start = match glance.phase {
            TcpPhase::Ends => return from.end(glance.key),
            TcpPhase::Opens if is_bare => Start::Now,
            TcpPhase::Accepts if is_bare && to.carries(glance.key.reversed()) => Start::Now,
            TcpPhase::Opens | TcpPhase::Accepts => return,
            TcpPhase::Goes if recent.is_due(&glance.key, self.now) => Start::Quiet,
            TcpPhase::Goes => return,
        };
        from.offer(to, Offer { key: glance.key, vlan: frame.vlan, mtu, moment, start });
    }
}

/// Whether a TCP segment begins or ends its connection.
fn is_edge(header: &[u8], frame: &Frame) -> bool {
    const FIN_SYN_RST: u8 = 7;
    header.get(usize::from(frame.parsed.l4) + 13).is_some_and(|flags| flags & FIN_SYN_RST != 0)
}
