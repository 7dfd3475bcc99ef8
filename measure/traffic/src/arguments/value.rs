//! Values of options: sizes, counts, addresses, mappings.

use super::ArgumentError;
use crate::plan::Mapping;
use std::net::IpAddr;
use std::str::FromStr;

const SIZE: &str = "a number, with k, m or g for 2^10, 2^20 or 2^30";
const RATE: &str = "a number, with k, m or g for 10^3, 10^6 or 10^9";
const MAPPING: &str = "THREADS,PROCESSOR,ADDRESS with 1 to 1024 threads and * or a number as processor, such as 8,*,192.168.1.1";

/// Whether a word is a number with or without a unit.
pub(super) fn is_size(word: &str) -> bool {
    scaled(word, 1024).is_some()
}

/// Parses bytes or buffers: k, m and g are powers of 1024.
pub(super) fn size(option: &str, word: &str) -> Result<u64, ArgumentError> {
    scaled(word, 1024).ok_or_else(|| bad(option, word, SIZE))
}

/// Parses bits per second: k, m and g are powers of 1000.
pub(super) fn rate(option: &str, word: &str) -> Result<u64, ArgumentError> {
    scaled(word, 1000).filter(|rate| *rate > 0).ok_or_else(|| bad(option, word, RATE))
}

/// Parses a size that a buffer in memory can have.
pub(super) fn bytes(option: &str, word: &str) -> Result<usize, ArgumentError> {
    usize::try_from(size(option, word)?).map_err(|_| bad(option, word, SIZE))
}

/// Parses a socket buffer's size: -1 and 0 leave the host's default.
pub(super) fn socket_bytes(option: &str, word: &str) -> Result<Option<usize>, ArgumentError> {
    if word == "-1" {
        return Ok(None);
    }
    let bytes = bytes(option, word)?;
    if bytes > i32::MAX as usize {
        return Err(bad(option, word, "at most 2 GiB"));
    }
    Ok((bytes > 0).then_some(bytes))
}

/// Parses a plain number within the range of its type.
pub(super) fn number<T: FromStr>(
    option: &str,
    word: &str,
    wanted: &'static str,
) -> Result<T, ArgumentError> {
    word.parse().map_err(|_| bad(option, word, wanted))
}

/// Parses seconds, up to a year: longer ones would only overflow sums.
pub(super) fn seconds(option: &str, word: &str) -> Result<u32, ArgumentError> {
    const YEAR: u32 = 366 * 24 * 3600;
    const WANTED: &str = "seconds, up to 31622400,";
    number(option, word, WANTED)
        .and_then(|s: u32| if s <= YEAR { Ok(s) } else { Err(bad(option, word, WANTED)) })
}

/// Parses a port that leaves one below it for synchronisation.
pub(super) fn port(option: &str, word: &str) -> Result<u16, ArgumentError> {
    const WANTED: &str = "a port from 2 to 65535";
    number(option, word, WANTED)
        .and_then(|port: u16| if port >= 2 { Ok(port) } else { Err(bad(option, word, WANTED)) })
}

/// Parses a numeric address.
pub(super) fn address(option: &str, word: &str) -> Result<IpAddr, ArgumentError> {
    number(option, word, "an IPv4 or IPv6 address in numbers (`getent hosts NAME` finds a name's)")
}

/// Parses `-m`'s triple.
pub(super) fn mapping(option: &str, word: &str) -> Result<Mapping, ArgumentError> {
    let wrong = || bad(option, word, MAPPING);
    let mut parts = word.splitn(3, ',');
    let mut part = || parts.next().ok_or_else(wrong);
    let ports: u16 = part()?.parse().map_err(|_| wrong())?;
    let processor = match part()? {
        "*" => None,
        number => Some(number.parse().map_err(|_| wrong())?),
    };
    let host = part()?.parse().map_err(|_| wrong())?;
    if !(1..=1024).contains(&ports) {
        return Err(wrong());
    }
    Ok(Mapping { ports, processor, host })
}

pub(super) fn bad(option: &str, value: &str, wanted: &'static str) -> ArgumentError {
    ArgumentError::Value { option: option.into(), value: value.into(), wanted }
}

fn scaled(word: &str, thousand: u64) -> Option<u64> {
    let (digits, power) = match word.char_indices().next_back()? {
        (at, 'k' | 'K') => (word.get(..at)?, 1),
        (at, 'm' | 'M') => (word.get(..at)?, 2),
        (at, 'g' | 'G') => (word.get(..at)?, 3),
        _ => (word, 0),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(thousand.pow(power))
}
