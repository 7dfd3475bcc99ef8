//! TCP's sequence numbers of a flow, as far as frames were looked at: tells bytes that came before.
//!
//! A frame whose first byte lies before the end of what was seen is one that its sender sent again,
//! or that another overtook. What was not looked at is not missed: it only makes the end lie further
//! back, so that fewer are told.

use wire::tcp::TcpFlags;
use wire::{Kind, Parsed};

/// Bytes that a sender may have under way. What lies further back is no repetition, but another
/// connection of the same ports, or a table that has not seen the flow for long.
const MOST_UNDER_WAY: u32 = 1 << 26;

/// The sequence numbers that a frame takes: of its bytes, and of SYN.
#[derive(Clone, Copy)]
pub(super) struct Range {
    first: u32,
    length: u32,
    is_syn: bool,
}

impl Range {
    /// Returns the range of a TCP segment or train; `None` of other frames, and of one that takes no
    /// numbers, such as a bare acknowledgement.
    pub(super) fn read(header: &[u8], parsed: &Parsed) -> Option<Range> {
        if parsed.kind != Kind::Tcp {
            return None;
        }
        let tcp = header.get(usize::from(parsed.l4)..)?.first_chunk::<20>()?;
        let [.., a, b, c, d, _, _, _, _, _, flags, _, _, _, _, _, _] = *tcp;
        let is_syn = TcpFlags::from_bits_retain(flags).contains(TcpFlags::SYN);
        let length = parsed.payload_len().saturating_add(is_syn.into());
        let first = u32::from_be_bytes([a, b, c, d]);
        (length > 0).then_some(Range { first, length, is_syn })
    }
}

/// Where the bytes of a flow that were seen end.
#[derive(Clone, Copy, Default)]
pub(super) struct Sequence {
    end: u32,
    /// Whether any was seen.
    is_known: bool,
}

impl Sequence {
    /// Adds a frame's range. Returns whether some of it came before.
    pub(super) fn came_before(&mut self, Range { first, length, is_syn }: Range) -> bool {
        let next = first.wrapping_add(length);
        let behind = self.end.wrapping_sub(first);
        let is_near = self.is_known && (1..=MOST_UNDER_WAY).contains(&behind);
        // A SYN begins a connection, unless it is the one that was seen last.
        let came_before = is_near && (!is_syn || behind == length);
        let goes_on = self.end.wrapping_sub(next) > MOST_UNDER_WAY;
        if !came_before || goes_on {
            self.end = next;
        }
        self.is_known = true;
        came_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ranges: &[(u32, u32)]) -> Vec<bool> {
        let mut sequence = Sequence::default();
        let add = |&(first, length): &(u32, u32)| {
            sequence.came_before(Range { first, length, is_syn: false })
        };
        ranges.iter().map(add).collect()
    }

    #[test]
    fn bytes_that_were_seen_are_told_also_around_zero() {
        for base in [0, 1 << 31, u32::MAX - 2500, u32::MAX] {
            let at = |(first, length): (u32, u32)| (first.wrapping_add(base), length);
            let ranges = [(0, 1000), (1000, 1000), (1000, 1000), (3000, 1000), (2000, 1000)];
            let told = told(&ranges.map(at));
            assert_eq!(told, [false, false, true, false, true], "{base}");
        }
    }

    /// The end of what was seen stays: a repetition of old bytes does not make new ones of later
    /// ones.
    #[test]
    fn a_repetition_does_not_take_the_end_back() {
        let ranges = [(0, 5000), (1000, 1000), (4000, 1000), (4500, 1000), (5000, 1000)];
        assert_eq!(told(&ranges), [false, true, true, true, true]);
        assert_eq!(told(&[(0, 5000), (4500, 1000), (5500, 1000)]), [false, true, false]);
    }

    #[test]
    fn what_is_far_away_is_another_connection() {
        let far = MOST_UNDER_WAY + 1;
        assert_eq!(told(&[(far, 1000), (0, 1000), (500, 100)]), [false, false, true]);
        assert_eq!(told(&[(0, 1), (1 << 31, 1), (1 << 31, 1)]), [false, false, true]);
    }

    #[test]
    fn a_syn_begins_anew_and_one_that_is_sent_again_is_told() {
        let mut sequence = Sequence::default();
        let mut syn = |first| sequence.came_before(Range { first, length: 1, is_syn: true });
        assert_eq!([syn(7), syn(7), syn(5), syn(5), syn(8)], [false, true, false, true, false]);
    }
}
