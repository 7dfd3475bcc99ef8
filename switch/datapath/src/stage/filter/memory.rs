//! The flows of a worker's burst or list, with the decision about each.
//!
//! For TCP and UDP, guards and rules test only the fields in [`Key`], so frames with equal keys get
//! equal decisions.

use crate::frame::addresses::Addresses;
use crate::port::acl::Ruling;
use wire::{Parsed, Traits};

/// The rulings about flows of this burst or list. IPv4 and IPv6 have tables of their own, since
/// their keys differ in length.
pub(crate) struct Memory {
    v4: Slots<4>,
    v6: Slots<7>,
    /// The number of the burst or list, which is part of the keys: earlier rulings do not hold.
    scope: u64,
}

/// A flow as it stands in its headers: MAC addresses, then ports, protocol and scope in one word,
/// then IP addresses.
type Key<const WORDS: usize> = [u64; WORDS];

/// Rulings by some bits of a flow's hash; the key says which flow it was.
struct Slots<const WORDS: usize>(Box<[(Key<WORDS>, Ruling); 256]>);

impl<const WORDS: usize> Slots<WORDS> {
    fn new() -> Slots<WORDS> {
        Slots(Box::new([([0; WORDS], Ruling::PASS); 256]))
    }

    #[cold]
    fn clear(&mut self) {
        self.0.fill(([0; WORDS], Ruling::PASS));
    }

    /// Returns the ruling about the flow; `decide` makes it if there is none yet. Only TCP and UDP
    /// are remembered.
    #[inline(always)]
    fn recall(&mut self, key: Key<WORDS>, decide: impl FnOnce() -> Ruling) -> Ruling {
        let slot = &mut self.0[usize::from(hash(&key))];
        // One comparison of all words: `slot.0 != key` takes ten instructions a frame more
        // (`acl_seen` of the bench).
        let differ = slot.0.iter().zip(&key).fold(0, |differ, (one, two)| differ | (one ^ two));
        if differ != 0 {
            *slot = (key, decide());
        }
        slot.1
    }
}

impl Memory {
    /// The step of the scope, above the bits of ports and protocol.
    const SCOPE: u64 = 1 << 40;

    pub(crate) fn new() -> Memory {
        Memory { v4: Slots::new(), v6: Slots::new(), scope: 0 }
    }

    /// Forgets all flows.
    pub(crate) fn begin(&mut self) {
        self.scope = self.scope.checked_add(Memory::SCOPE).unwrap_or_else(|| {
            self.v4.clear();
            self.v6.clear();
            Memory::SCOPE
        });
    }

    /// Returns the earlier decision about the flow, or decides now. Nothing is remembered of what
    /// is neither TCP nor UDP.
    #[inline(always)]
    pub(crate) fn recall(
        &mut self,
        headers: &[u8],
        parsed: &Parsed,
        decide: impl FnOnce() -> Ruling,
    ) -> Ruling {
        let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
        if !parsed.kind.has_ports() {
            return decide();
        }
        let Some(ports) = headers.get(l4..l4 + 4) else { return decide() };
        let ports = ports.first_chunk().map_or(0, |ports| u32::from_ne_bytes(*ports));
        let rest = self.scope | u64::from(ports) << 8 | u64::from(parsed.protocol);
        // MAC addresses are read last: they precede the IP header, so the compiler needs no further
        // check.
        if parsed.traits.contains(Traits::IPV4) {
            let Some(ip) = headers.get(l3 + 12..l3 + 20) else { return decide() };
            let Addresses(one, two) = Addresses::read(headers).unwrap_or_default();
            self.v4.recall([one, two, rest, word(ip, 0)], decide)
        } else {
            let Some(ip) = headers.get(l3 + 8..l3 + 40) else { return decide() };
            let Addresses(one, two) = Addresses::read(headers).unwrap_or_default();
            let [a, b, c, d] = [0, 8, 16, 24].map(|at| word(ip, at));
            self.v6.recall([one, two, rest, a, b, c, d], decide)
        }
    }
}

/// Hashes addresses and ports by multiplication. A guest can make its flows share a slot; that
/// costs a lookup, as the first frame of a flow does anyway.
#[inline(always)]
fn hash(key: &[u64]) -> u8 {
    let ip = key.iter().skip(2).fold(0, |mixed: u64, word| mixed ^ word);
    (ip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Returns eight of the bytes, from `at` on; the caller knows that there are as many.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word))
}
