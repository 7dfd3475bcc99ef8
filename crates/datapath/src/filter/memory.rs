//! The flows of a worker's burst or list, and what was decided about each.
//!
//! Guards and rules ask nothing of TCP and UDP but what [`Key`] holds, so frames with the same key are decided alike.

use crate::counters::DropReason;
use wire::{Kind, Parsed, Traits};

/// What guards and rules say of a frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Decision {
    /// Why it is dropped.
    pub(crate) drop: Option<DropReason>,
    /// The rule that decided; its counter is to count.
    pub(crate) rule: Option<u16>,
}

/// By the low bits of a flow's hash; the key says which flow it was.
pub(crate) struct Memory {
    slots: Box<[(Key, Decision)]>,
    /// Number of the burst or list, in the keys: what was decided before holds no more.
    scope: u64,
}

impl Memory {
    const SLOTS: usize = 256;
    /// Where a key holds the scope: above ports, protocol and family.
    const SCOPE: u32 = 41;

    pub(crate) fn new() -> Memory {
        Memory { slots: vec![Default::default(); Memory::SLOTS].into(), scope: 0 }
    }

    /// Forgets all flows.
    pub(crate) fn begin(&mut self) {
        self.scope += 1;
        if self.scope >> (64 - Memory::SCOPE) != 0 {
            self.slots.fill(Default::default());
            self.scope = 1;
        }
    }

    /// What was decided about the flow, or is now.
    #[inline(always)]
    pub(crate) fn recall(
        &mut self,
        headers: &[u8],
        parsed: &Parsed,
        decide: impl Fn() -> Decision,
    ) -> Decision {
        let Some(key) = Key::of(headers, parsed, self.scope << Memory::SCOPE) else {
            return decide();
        };
        let Some(slot) = self.slots.get_mut(key.slot()) else { return decide() };
        if !slot.0.equals(&key) {
            *slot = (key, decide());
        }
        slot.1
    }
}

/// A flow as it stands in its headers: MAC addresses, IP addresses, and the rest in one word.
#[derive(Clone, Copy, Default)]
struct Key([u64; 7]);

impl Key {
    /// `None`: neither TCP nor UDP.
    #[inline(always)]
    fn of(headers: &[u8], parsed: &Parsed, scope: u64) -> Option<Key> {
        if !matches!(parsed.kind, Kind::Tcp | Kind::Udp) {
            return None;
        }
        let macs: &[u8; 12] = headers.first_chunk()?;
        let ports: &[u8; 4] = headers.get(usize::from(parsed.l4)..)?.first_chunk()?;
        let network = headers.get(usize::from(parsed.l3)..)?;
        let is_v4 = parsed.traits.contains(Traits::IPV4);
        let [a, b, c, d] = if is_v4 {
            let ip: &[u8; 20] = network.first_chunk()?;
            [word(ip, 12)?, 0, 0, 0]
        } else {
            let ip: &[u8; 40] = network.first_chunk()?;
            [word(ip, 8)?, word(ip, 16)?, word(ip, 24)?, word(ip, 32)?]
        };
        let ports = u64::from(u32::from_ne_bytes(*ports)) << 9;
        let rest = scope | ports | u64::from(parsed.protocol) << 1 | u64::from(is_v4);
        Some(Key([word(macs, 0)?, word(macs, 4)?, a, b, c, d, rest]))
    }

    /// Without a branch for each word.
    #[inline(always)]
    fn equals(&self, other: &Key) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (one, two)| differ | (one ^ two)) == 0
    }

    /// Its place in a [`Memory`]: a multiplicative hash of addresses and ports.
    #[inline(always)]
    fn slot(&self) -> usize {
        let [_, _, a, b, c, d, rest] = self.0;
        let mixed = a ^ b.rotate_left(8) ^ c.rotate_left(16) ^ d.rotate_left(24) ^ rest;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}
