//! The kernel's own description of its functions and structs (BTF, Linux
//! `Documentation/bpf/btf.rst`), as far as programs need it: the number of a function or struct,
//! where a struct has a member, and the value of an enumerator.
//!
//! The kernel writes it. It is read like any other file all the same: no length or number in it is
//! believed.

use std::collections::HashMap;

/// The file of the running kernel.
pub const PATH: &str = "/sys/kernel/btf/vmlinux";

/// Most structs, unions or modifiers that are followed one behind the other, and most members that
/// are looked at for one: the kernel has far fewer, and a circle ends.
const DEPTH: usize = 16;
const LOOKS: usize = 1 << 16;

/// A description, read once for all questions.
pub(crate) struct Types<'b> {
    /// The types, one behind the other.
    bytes: &'b [u8],
    strings: &'b [u8],
    /// Where each type starts in `bytes`; the first has the number 1.
    starts: Vec<u32>,
}

/// A member of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Bits before it.
    pub(crate) bit: u32,
    /// Bits of it.
    pub(crate) bits: u32,
}

/// The kind of a type, by its number in `uapi/linux/btf.h`.
mod kind {
    pub(super) const INTEGER: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const TYPE_TAG: u32 = 18;
}

/// The fixed part of a type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// Members, enumerators or parameters.
    count: usize,
    /// Whether members have their bits beside their offset.
    has_bits: bool,
    /// The size in bytes, or the number of another type.
    value: u32,
    /// Where its members start.
    rest: usize,
}

/// Bytes of a type's fixed part, of a member and of an enumerator.
const FIXED: usize = 12;
const MEMBER: usize = 12;
const ENUMERATOR: usize = 8;

impl<'b> Types<'b> {
    /// Reads a description. `None` if it is none, or has a kind of type that is not known.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<Types<'b>> {
        const MAGIC: [u8; 2] = 0xeb9f_u16.to_ne_bytes();
        if bytes.get(..2)? != MAGIC {
            return None;
        }
        let header = word(bytes, 4)?;
        let part = |place| {
            let start = header.checked_add(word(bytes, place)?)?;
            bytes.get(start as usize..)?.get(..word(bytes, place + 4)? as usize)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut read = Types { bytes: types, strings, starts: Vec::new() };
        let mut next = 0;
        while next < types.len() {
            read.starts.push(u32::try_from(next).ok()?);
            next = read.end(next)?;
        }
        (next == types.len()).then_some(read)
    }

    /// Returns the number of a function that programs may call.
    pub(crate) fn function(&self, name: &str) -> Option<u32> {
        self.number(kind::FUNCTION, name)
    }

    /// Returns the number of a struct.
    pub(crate) fn structure(&self, name: &str) -> Option<u32> {
        self.number(kind::STRUCT, name)
    }

    /// Returns a member of a struct, also one of a struct or union without a name in it.
    pub(crate) fn member(&self, structure: u32, name: &str) -> Option<Member> {
        self.member_below(structure, name, DEPTH, &mut { LOOKS })
    }

    /// Returns the values of these enumerators, of whatever types, as far as there are such.
    pub(crate) fn enumerators<'n>(&self, names: &[&'n str]) -> HashMap<&'n str, u32> {
        let mut found = HashMap::new();
        for at in (0..self.starts.len()).filter_map(|place| self.at(place)) {
            if at.kind != kind::ENUM {
                continue;
            }
            for place in (0..at.count).map(|number| at.rest + number * ENUMERATOR) {
                let known = word(self.bytes, place).and_then(|called| self.one_of(called, names));
                if let (Some(name), Some(value)) = (known, word(self.bytes, place + 4)) {
                    found.insert(name, value);
                }
            }
        }
        found
    }

    fn number(&self, kind: u32, name: &str) -> Option<u32> {
        let is_meant = |at: Type| at.kind == kind && self.is_called(at.name, name);
        let place = (0..self.starts.len()).find(|place| self.at(*place).is_some_and(is_meant))?;
        u32::try_from(place + 1).ok()
    }

    /// Looks for a member in at most `depth` parts one within the other, as long as there are
    /// `looks` left.
    fn member_below(
        &self,
        structure: u32,
        name: &str,
        depth: usize,
        looks: &mut usize,
    ) -> Option<Member> {
        let depth = depth.checked_sub(1)?;
        let at = self.plain(structure)?;
        if ![kind::STRUCT, kind::UNION].contains(&at.kind) {
            return None;
        }
        for place in (0..at.count).map(|number| at.rest + number * MEMBER) {
            *looks = looks.checked_sub(1)?;
            let field = |offset| word(self.bytes, place + offset);
            let (called, of, offset) = (field(0)?, field(4)?, field(8)?);
            let (bit, bits) =
                if at.has_bits { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            if called == 0 {
                if let Some(found) = self.member_below(of, name, depth, looks) {
                    return Some(Member { bit: bit.checked_add(found.bit)?, ..found });
                }
            } else if self.is_called(called, name) {
                let bits = if bits == 0 { self.bits(of)? } else { bits };
                return Some(Member { bit, bits });
            }
        }
        None
    }

    /// Returns the bits of a type.
    fn bits(&self, number: u32) -> Option<u32> {
        let at = self.plain(number)?;
        match at.kind {
            kind::INTEGER | kind::ENUM | kind::STRUCT | kind::UNION => at.value.checked_mul(8),
            kind::POINTER => Some(usize::BITS),
            _ => None,
        }
    }

    /// Returns the type behind other names and modifiers.
    fn plain(&self, number: u32) -> Option<Type> {
        use kind::{CONST, RESTRICT, TYPE_TAG, TYPEDEF, VOLATILE};
        let mut number = number;
        for _ in 0..DEPTH {
            let at = self.at((number as usize).checked_sub(1)?)?;
            if ![CONST, RESTRICT, TYPE_TAG, TYPEDEF, VOLATILE].contains(&at.kind) {
                return Some(at);
            }
            number = at.value;
        }
        None
    }

    fn at(&self, place: usize) -> Option<Type> {
        self.type_at(*self.starts.get(place)? as usize)
    }

    fn type_at(&self, start: usize) -> Option<Type> {
        let info = word(self.bytes, start + 4)?;
        Some(Type {
            name: word(self.bytes, start)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bits: info >> 31 != 0,
            value: word(self.bytes, start + 8)?,
            rest: start + FIXED,
        })
    }

    /// Returns where the type that starts here ends.
    fn end(&self, start: usize) -> Option<usize> {
        let Type { kind, count, rest, .. } = self.type_at(start)?;
        // The table of `Documentation/bpf/btf.rst`, by the kind's number.
        let more = match kind {
            2 | 7..=12 | 16 | 18 => 0,
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            _ => return None,
        };
        Some(rest + more)
    }

    fn is_called(&self, place: u32, name: &str) -> bool {
        let after = self
            .strings
            .get(place as usize..)
            .and_then(|strings| strings.strip_prefix(name.as_bytes()));
        after.and_then(<[u8]>::first) == Some(&0)
    }

    fn one_of<'n>(&self, place: u32, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.is_called(place, name))
    }
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes a description: each type as its name's place, kind, count or flag, value and rest.
    fn write(types: &[(u32, u32, u32, &[u32])], strings: &[u8]) -> Vec<u8> {
        let words = types.iter().flat_map(|(name, info, value, rest)| {
            [&[*name, *info, *value], *rest].concat().into_iter().flat_map(u32::to_ne_bytes)
        });
        let words: Vec<u8> = words.collect();
        let mut bytes = [&0xeb9f_u16.to_ne_bytes()[..], &[1, 0]].concat();
        let (types, text) = (words.len() as u32, strings.len() as u32);
        bytes.extend([24, 0, types, types, text].into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend(words);
        bytes.extend(strings);
        bytes
    }

    /// `struct a { u16 b; union { struct { u8 c : 2, d : 3; }; }; }`, `a e(…)` and `enum { f = 7 }`.
    fn example() -> Vec<u8> {
        write(
            &[
                (0, 1 << 24, 2, &[16]),
                (1, 4 << 24 | 2, 4, &[3, 1, 0, 0, 3, 16]),
                (0, 5 << 24 | 1, 1, &[0, 4, 0]),
                (0, 1 << 31 | 4 << 24 | 2, 1, &[5, 6, 2 << 24, 7, 6, 3 << 24 | 2]),
                (9, 12 << 24, 8, &[]),
                (0, 1 << 24, 1, &[8]),
                (0, 6 << 24 | 1, 4, &[11, 7]),
            ],
            b"\0a\0b\0c\0d\0e\0f\0",
        )
    }

    #[test]
    fn members_of_nameless_parts_are_found_with_their_bits() {
        let bytes = example();
        let types = Types::read(&bytes).unwrap();
        let a = types.structure("a").unwrap();
        let member = |name| types.member(a, name).map(|member| (member.bit, member.bits));
        assert_eq!(["b", "c", "d"].map(member), [Some((0, 16)), Some((16, 2)), Some((18, 3))]);
        assert_eq!(["e", "", "x"].map(member), [None; 3]);
        assert_eq!((a, types.function("e"), types.function("a")), (2, Some(5), None));
        assert_eq!(types.enumerators(&["f", "g"]), HashMap::from([("f", 7)]));
    }

    #[test]
    fn the_running_kernel_s_description_is_read() {
        let Ok(bytes) = std::fs::read(PATH) else {
            return eprintln!("skipped: needs a kernel with CONFIG_DEBUG_INFO_BTF");
        };
        let types = Types::read(&bytes).unwrap();
        let packet = types.structure("sk_buff").unwrap();
        let bits = |name| types.member(packet, name).unwrap().bits;
        assert_eq!(["ip_summed", "csum_start", "mac_header"].map(bits), [2, 16, 16]);
    }

    proptest! {
        /// A circle of nameless parts or of other names ends too.
        #[test]
        fn no_description_panics_or_hangs(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut: prop::sample::Index,
        ) {
            let mut bytes = example();
            damage.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
            bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len() / 2));
            if let Some(types) = Types::read(&bytes) {
                let _ = (types.function("e"), types.enumerators(&["f"]));
                for number in 0..9 {
                    let _ = (types.member(number, "d"), types.member(number, "x"));
                }
            }
        }
    }
}
