//! What a frame's sender said about it, in the kernel's own description of the frame: where its
//! checksum is to be finished, and what kind of train it is.
//!
//! A container with a raw socket, a VMM and a guest behind one say so themselves (`PACKET_VNET_HDR`,
//! AF_XDP's metadata, a TAP's header). The kernel takes their word and finishes the checksum behind
//! the [judge](super::program), wherever that is: over an address, a port or the EtherType. Programs
//! have no field for it. So the judge reads `struct sk_buff` itself, whose shape the running kernel
//! [describes](crate::bpf::types).

use crate::bpf::types::{self, Member, Types};
use std::io;

/// Numbers and offsets of this kernel that the judge's check needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    /// The functions `bpf_cast_to_kern_ctx` and `bpf_rdonly_cast`.
    pub(super) cast: u32,
    pub(super) cast_pointer: u32,
    /// `struct skb_shared_info`, which stands at `head` + `end`.
    pub(super) shared: u32,
    /// Offsets in `struct sk_buff`.
    pub(super) summed: Summed,
    pub(super) checksum_start: i16,
    pub(super) checksum_offset: i16,
    pub(super) mac_header: i16,
    pub(super) head: i16,
    /// How many of the frame's bytes lie in pages, which others may share and write.
    pub(super) paged: i16,
    pub(super) end: i16,
    /// The offset of `gso_type` in `struct skb_shared_info`.
    pub(super) train_kind: i16,
    /// The bits of `gso_type` that a train of TCP over IPv4 has none of, and one over IPv6.
    pub(super) not_ipv4: i32,
    pub(super) not_ipv6: i32,
    /// Whether a train may come with a checksum that nobody has looked at and nobody is to finish. No
    /// interface makes such a train; a container may.
    pub(super) has_bare_trains: bool,
}

/// Where a frame says that its checksum is left to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summed {
    /// The byte with `ip_summed`.
    pub(super) byte: i16,
    /// The field's bits in that byte, and there `CHECKSUM_PARTIAL`, and `CHECKSUM_UNNECESSARY`, by
    /// which a driver says that it is right.
    pub(super) mask: i32,
    pub(super) partial: i32,
    pub(super) right: i32,
}

/// The names of the bits of `gso_type` that a train of TCP may have over either IP version: its
/// segments are unchecked, have congestion flags, all have one identification, or are a list of
/// frames. A kernel may not have all of them.
const EITHER: [&str; 5] = [
    "SKB_GSO_DODGY",
    "SKB_GSO_TCP_ECN",
    "SKB_GSO_TCP_ACCECN",
    "SKB_GSO_TCP_FIXEDID",
    "SKB_GSO_FRAGLIST",
];
const IPV4: &str = "SKB_GSO_TCPV4";
const IPV6: &str = "SKB_GSO_TCPV6";

/// `CHECKSUM_PARTIAL` and `CHECKSUM_UNNECESSARY`, macros of the kernel.
const PARTIAL: i32 = 3;
const RIGHT: i32 = 1;

impl Claims {
    /// Reads the description of the running kernel.
    ///
    /// # Errors
    /// Fails if the kernel has none (`NotFound`), or one in which something needed is missing
    /// (ENOSYS).
    pub(super) fn of_kernel() -> io::Result<Claims> {
        let bytes = std::fs::read(types::PATH)?;
        let claims = Types::read(&bytes).and_then(|types| Claims::find(&types));
        claims.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// Returns the claims of a test's runs, which can leave no checksum to others.
    pub(super) fn of_runs(self) -> Claims {
        Claims { has_bare_trains: true, ..self }
    }

    fn find(types: &Types<'_>) -> Option<Claims> {
        let (frame, shared) = (types.structure("sk_buff")?, types.structure("skb_shared_info")?);
        let whole = |structure, name, bits| {
            let found = types.member(structure, name)?;
            (found.bits == bits && found.bit % 8 == 0).then_some(found.bit / 8)?.try_into().ok()
        };
        let bits = types.enumerators(&[&EITHER[..], &[IPV4, IPV6]].concat());
        let bit = |name| bits.get(name).copied();
        let either = EITHER.into_iter().filter_map(bit).fold(0, |all, one| all | one);
        let none_but = |own: u32| (!(either | own)).cast_signed();
        Some(Claims {
            cast: types.function("bpf_cast_to_kern_ctx")?,
            cast_pointer: types.function("bpf_rdonly_cast")?,
            shared,
            summed: Summed::of(types.member(frame, "ip_summed")?)?,
            checksum_start: whole(frame, "csum_start", 16)?,
            checksum_offset: whole(frame, "csum_offset", 16)?,
            mac_header: whole(frame, "mac_header", 16)?,
            head: whole(frame, "head", 64)?,
            end: whole(frame, "end", 32)?,
            paged: whole(frame, "data_len", 32)?,
            train_kind: whole(shared, "gso_type", 32)?,
            not_ipv4: none_but(bit(IPV4)?),
            not_ipv6: none_but(bit(IPV6)?),
            has_bare_trains: false,
        })
    }
}

impl Summed {
    /// Finds the field's byte; `None` if it is not two bits of one byte. Bits of a byte are counted
    /// from the lowest on little-endian machines, from the highest on others.
    fn of(Member { bit, bits }: Member) -> Option<Summed> {
        let within = bit % 8;
        if bits != 2 || within > 6 {
            return None;
        }
        let shift = if cfg!(target_endian = "little") { within } else { 6 - within };
        let [mask, partial, right] = [3, PARTIAL, RIGHT].map(|value| value << shift);
        Some(Summed { byte: (bit / 8).try_into().ok()?, mask, partial, right })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_across_two_bytes_or_of_another_width_is_refused() {
        let of = |bit, bits| Summed::of(Member { bit, bits });
        let little =
            Summed { byte: 128, mask: 0b0110_0000, partial: 0b0110_0000, right: 0b0010_0000 };
        if cfg!(target_endian = "little") {
            assert_eq!(of(1029, 2), Some(little));
        }
        assert_eq!([of(1031, 2), of(1029, 3), of(1024, 8)], [None; 3]);
    }

    #[test]
    fn the_running_kernel_s_trains_have_a_bit_for_each_ip_version() {
        let Ok(claims) = Claims::of_kernel() else {
            return eprintln!("skipped: needs a kernel with CONFIG_DEBUG_INFO_BTF");
        };
        let Claims { not_ipv4, not_ipv6, .. } = claims;
        assert_eq!((!not_ipv4 & !not_ipv6).count_ones() + 2, (!(not_ipv4 & not_ipv6)).count_ones());
    }
}
