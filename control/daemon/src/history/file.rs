//! The history as a file, so that it survives a restart.
//!
//! A line that names the format, a checksum, then the switch and each port: numbers as little-endian
//! words, 16 bits for a value. A file that is not exactly this is refused whole; the daemon sets it
//! aside and starts without it.

use super::series::{Block, CELLS, Series};
use super::track::{MINUTES, SECONDS, Track};
use super::{PortTrack, SwitchTrack};
use problem::Problem;
use std::collections::{BTreeMap, VecDeque};

/// The first line. Another version has another one.
const MAGIC: &[u8] = b"millrace history 1\n";
/// Bytes of the checksum behind it.
const SUM: usize = 8;
/// Longest name of a port, in bytes.
const NAME: usize = 256;
/// The latest number that a file may have: no clock shows it, and no sum with it overflows.
const LATEST: u64 = 1 << 40;

/// The tracks of the switch and of its ports, by name.
pub(crate) type Kept = (SwitchTrack, BTreeMap<String, PortTrack>);

/// Returns the file's bytes, with the seconds or without.
pub(super) fn to_bytes(
    switch: &SwitchTrack,
    ports: &BTreeMap<String, PortTrack>,
    with_seconds: bool,
) -> Vec<u8> {
    let mut all = [MAGIC, &[0; SUM]].concat();
    track(&mut all, switch, with_seconds);
    for (name, port) in ports {
        word(&mut all, name.len() as u64);
        all.extend_from_slice(name.as_bytes());
        track(&mut all, port, with_seconds);
    }
    if let Some((sum, body)) =
        all.get_mut(MAGIC.len()..).and_then(<[u8]>::split_first_chunk_mut::<SUM>)
    {
        *sum = checksum(body).to_le_bytes();
    }
    all
}

/// Reads a file's bytes, which may be arbitrary.
///
/// # Errors
/// They are not a whole file of this version.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Kept, Problem> {
    read(bytes).ok_or_else(|| {
        Problem::new("the history of traffic cannot be read")
            .seen("a damaged file, or one of another version")
            .wanted("a file that this version of the daemon wrote in full")
            .remedy("nothing is needed: it begins anew, and ports are not affected")
    })
}

fn read(bytes: &[u8]) -> Option<Kept> {
    let (sum, body) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return None;
    }
    let mut rest = body;
    let switch = read_track(&mut rest)?;
    let mut ports = BTreeMap::new();
    while !rest.is_empty() {
        let length =
            usize::try_from(read_word(&mut rest)?).ok().filter(|length| *length <= NAME)?;
        let (name, behind) = rest.split_at_checked(length)?;
        rest = behind;
        ports.insert(std::str::from_utf8(name).ok()?.to_owned(), read_track(&mut rest)?);
    }
    Some((switch, ports))
}

/// FNV-1a by words and then by bytes, which finds damage; the directory keeps strangers out.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, value: u64| (sum ^ value).wrapping_mul(0x0100_0000_01b3);
    let (words, rest) = bytes.as_chunks();
    let sum =
        words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

fn word(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(&value.to_le_bytes());
}

fn read_word(from: &mut &[u8]) -> Option<u64> {
    let (word, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*word))
}

fn track<const N: usize, const SUMS: usize>(
    to: &mut Vec<u8>,
    of: &Track<N, SUMS>,
    with_seconds: bool,
) {
    series(to, of.seconds.as_ref().filter(|_| with_seconds));
    series(to, Some(&of.minutes));
}

fn read_track<const N: usize, const SUMS: usize>(from: &mut &[u8]) -> Option<Track<N, SUMS>> {
    let (seconds, minutes) = (read_series(from, SECONDS)?, read_series(from, MINUTES)?);
    // Seconds that were not written begin anew.
    Some(Track::resumed(Some(seconds), minutes))
}

/// Writes the newest number, how many blocks there are, and each.
fn series<const N: usize>(to: &mut Vec<u8>, of: Option<&Series<N>>) {
    let Some(series) = of else { return [0, 0].into_iter().for_each(|value| word(to, value)) };
    word(to, series.newest);
    word(to, series.blocks.len() as u64);
    for block in &series.blocks {
        match block {
            Block::Unknown => to.push(0),
            Block::Idle => to.push(1),
            Block::Kept(cells) => {
                to.reserve(1 + CELLS * N * 2);
                to.push(2);
                for code in cells.iter().flatten() {
                    to.extend_from_slice(&code.to_le_bytes());
                }
            }
        }
    }
}

fn read_series<const N: usize>(from: &mut &[u8], most: usize) -> Option<Series<N>> {
    let newest = read_word(from).filter(|newest| *newest <= LATEST)?;
    let count = usize::try_from(read_word(from)?).ok().filter(|count| *count <= most)?;
    let mut blocks = VecDeque::with_capacity(count);
    for _ in 0..count {
        let (kind, rest) = from.split_first()?;
        *from = rest;
        blocks.push_back(match kind {
            0 => Block::Unknown,
            1 => Block::Idle,
            2 => read_cells(from)?,
            _ => return None,
        });
    }
    Some(Series { newest, blocks })
}

fn read_cells<const N: usize>(from: &mut &[u8]) -> Option<Block<N>> {
    let mut cells = Box::new([[0; N]; CELLS]);
    for code in cells.iter_mut().flatten() {
        let (word, rest) = from.split_first_chunk()?;
        *from = rest;
        *code = u16::from_le_bytes(*word);
    }
    Some(Block::Kept(cells))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tracks(seconds: u64) -> Kept {
        let (mut switch, mut port) = (SwitchTrack::new(true), PortTrack::new(true));
        for second in 1..=seconds {
            // It is idle every other minute.
            let count = second / 120 * 1000 + (second % 120).min(60) * 77;
            switch.take(second, 1, [count; 7], MINUTES);
            port.take(second, 1, [count; 5], MINUTES);
        }
        (switch, BTreeMap::from([("a".to_owned(), port)]))
    }

    /// Returns the series of a track, without what only the running process knows.
    fn series_of(kept: &Kept) -> impl PartialEq + std::fmt::Debug + use<> {
        let port = &kept.1["a"];
        (kept.0.minutes.clone(), port.seconds.clone(), port.minutes.clone())
    }

    #[test]
    fn what_was_written_is_read() {
        let kept = tracks(10_000);
        let again = from_bytes(&to_bytes(&kept.0, &kept.1, true)).unwrap();
        assert_eq!(series_of(&again), series_of(&kept));
        let without = from_bytes(&to_bytes(&kept.0, &kept.1, false)).unwrap();
        assert_eq!(without.1["a"].minutes, kept.1["a"].minutes);
        assert_eq!(without.1["a"].seconds, Some(Series::default()));
    }

    #[test]
    fn a_time_that_no_clock_shows_is_refused() {
        for (second, is_read) in [(LATEST, true), (LATEST + 1, false)] {
            let mut kept = tracks(10);
            kept.0.take(second, 1, [1; 7], MINUTES);
            assert_eq!(from_bytes(&to_bytes(&kept.0, &kept.1, true)).is_ok(), is_read);
        }
    }

    /// A minute that a restart falls into has what both processes counted in it.
    #[test]
    fn a_resumed_minute_goes_on() {
        let kept = tracks(90);
        let mut again =
            from_bytes(&to_bytes(&kept.0, &kept.1, true)).unwrap().1.remove("a").unwrap();
        let before = again.minutes.get(1).unwrap()[0];
        again.take(95, 1, [500; 5], MINUTES);
        assert_eq!(again.minutes.get(1).unwrap()[0], before + 500);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = from_bytes(&bytes);
            // With a checksum that is right, what is behind it is read.
            let _ = from_bytes(&[MAGIC, &checksum(&bytes).to_le_bytes(), &bytes].concat());
        }

        #[test]
        fn a_file_that_was_cut_or_changed_is_refused(at: prop::sample::Index, flip in 1_u8..) {
            let kept = tracks(200);
            let mut bytes = to_bytes(&kept.0, &kept.1, true);
            let at = at.index(bytes.len());
            prop_assert!(from_bytes(&bytes[..at]).is_err());
            bytes[at] ^= flip;
            prop_assert!(from_bytes(&bytes).is_err());
        }
    }
}
