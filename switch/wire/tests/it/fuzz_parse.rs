//! Fuzz target: whatever bytes arrive, the parser and the readers behind it keep their promises.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told.

use crate::promises;
use wire::ethernet::ethertype;

/// Random bytes hardly ever start like IP: the first choice lets the short run reach behind the
/// EtherType, too.
#[test]
fn fuzz_parse() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(start, bytes)| {
        let mut frame = bytes.clone();
        let ethertype = match start % 4 {
            0 => Some((ethertype::IPV4, 0x45)),
            1 => Some((ethertype::IPV6, 0x60)),
            2 => Some((ethertype::VLAN, 0)),
            _ => None,
        };
        if let (Some((ethertype, version)), Some(field)) = (ethertype, frame.get_mut(12..15)) {
            field[..2].copy_from_slice(&ethertype.to_be_bytes());
            field[2] = version;
        }
        promises::check(&frame);
    });
}
