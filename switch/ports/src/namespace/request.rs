//! Requests to a helper and its answers: messages of fixed sizes, in this machine's byte order. The
//! side that reads a message checks it.

use crate::bpf::Hook;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The wanted thing, as one descriptor; all but the programs belong to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// An open `/dev/net/tun`: the kernel finds or makes the device in the namespace in which this
    /// was opened.
    Tap,
    /// A socket for the ioctls of links.
    Links,
    /// A socket of rtnetlink that reports changes of links.
    Changes,
    /// A raw packet socket.
    Packet,
    /// An AF_XDP socket.
    Xdp,
    /// A link that attaches the program sent with the request to an interface.
    Attached {
        /// The kernel's number of the interface.
        interface: u32,
        /// Where the kernel runs the program.
        hook: Hook,
    },
    /// The program that steers the queues of an uplink, for the four maps sent with the request.
    /// The helper has its own copy of the instructions.
    Steering,
    /// The kernel path's judge, for the five maps sent with the request. The helper has its own copy
    /// of the instructions, and reads itself where the kernel has what they read.
    Judge,
}

impl Wanted {
    /// Returns how many descriptors come with the request.
    pub(super) fn files(self) -> usize {
        match self {
            Wanted::Attached { .. } => 1,
            Wanted::Steering => 4,
            Wanted::Judge => MOST_FILES,
            _ => 0,
        }
    }

    /// Whether it is a program, which belongs to no namespace.
    pub(super) fn is_program(self) -> bool {
        matches!(self, Wanted::Steering | Wanted::Judge)
    }
}

/// Most descriptors of a message.
pub(super) const MOST_FILES: usize = 5;

/// Why nothing was made.
#[derive(Debug)]
pub(super) enum Refused {
    /// The namespace could not be entered.
    Entry(io::Error),
    /// The descriptor could not be made there.
    Making(io::Error),
}

/// Bytes of a path, followed by at least one zero.
const PATH: usize = libc::PATH_MAX as usize;
/// Bytes of a request: kind, interface and hook, 4 bytes each, then the path.
pub(super) const REQUEST: usize = 12 + PATH;
/// Bytes of an answer: result and error, 4 bytes each.
pub(super) const ANSWER: usize = 8;
/// Largest error number of the kernel.
const MOST_ERRNO: u32 = 4095;

/// Encodes a request. `None`: the path is too long or contains a zero, or it is empty for a kind
/// that needs one, or given for one that takes none.
pub(super) fn encode(path: &Path, wanted: Wanted) -> Option<[u8; REQUEST]> {
    let path = path.as_os_str().as_bytes();
    let is_fit = path.is_empty() == wanted.is_program();
    if !is_fit || path.len() >= PATH || path.contains(&0) {
        return None;
    }
    let (kind, interface, hook) = match wanted {
        Wanted::Tap => (0, 0, 0),
        Wanted::Links => (1, 0, 0),
        Wanted::Changes => (2, 0, 0),
        Wanted::Packet => (3, 0, 0),
        Wanted::Xdp => (4, 0, 0),
        Wanted::Attached { interface, hook } => (5, interface, hook as u32),
        Wanted::Steering => (6, 0, 0),
        Wanted::Judge => (7, 0, 0),
    };
    let mut bytes = [0; REQUEST];
    let numbers = [kind, interface, hook].map(u32::to_ne_bytes);
    bytes.get_mut(..12)?.copy_from_slice(numbers.as_flattened());
    bytes.get_mut(12..12 + path.len())?.copy_from_slice(path);
    Some(bytes)
}

/// Decodes what [`encode`] made; `None` if it did not make this.
pub(super) fn decode(bytes: &[u8]) -> Option<(PathBuf, Wanted)> {
    let bytes: &[u8; REQUEST] = bytes.try_into().ok()?;
    let (numbers, path) = bytes.split_at(12);
    let mut numbers = numbers.as_chunks::<4>().0.iter().map(|number| u32::from_ne_bytes(*number));
    let wanted = match (numbers.next()?, numbers.next()?, numbers.next()?) {
        (0, 0, 0) => Wanted::Tap,
        (1, 0, 0) => Wanted::Links,
        (2, 0, 0) => Wanted::Changes,
        (3, 0, 0) => Wanted::Packet,
        (4, 0, 0) => Wanted::Xdp,
        (5, interface, hook) => Wanted::Attached { interface, hook: Hook::of(hook)? },
        (6, 0, 0) => Wanted::Steering,
        (7, 0, 0) => Wanted::Judge,
        _ => return None,
    };
    let (path, rest) = path.split_at(path.iter().position(|byte| *byte == 0)?);
    let is_fit = path.is_empty() == wanted.is_program();
    let is_well_formed = is_fit && rest.iter().all(|byte| *byte == 0);
    is_well_formed.then(|| (PathBuf::from(OsStr::from_bytes(path)), wanted))
}

/// Encodes the answer that goes with the descriptor, if there is one.
pub(super) fn encode_answer<T>(made: &Result<T, Refused>) -> [u8; ANSWER] {
    let number = |error: &io::Error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        errno.clamp(1, MOST_ERRNO)
    };
    let (outcome, errno) = match made {
        Ok(_) => (0, 0),
        Err(Refused::Entry(error)) => (1, number(error)),
        Err(Refused::Making(error)) => (2, number(error)),
    };
    let mut bytes = [0; ANSWER];
    bytes.copy_from_slice([outcome, errno].map(u32::to_ne_bytes).as_flattened());
    bytes
}

/// Decodes what [`encode_answer`] made; `None` if it did not make this.
pub(super) fn decode_answer(bytes: &[u8]) -> Option<Result<(), Refused>> {
    let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
    let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_ne_bytes(*number));
    let error = |number: u32| {
        let number = (1..=MOST_ERRNO).contains(&number).then_some(number)?;
        Some(io::Error::from(Errno::from_raw_os_error(number.cast_signed())))
    };
    match (numbers.next()?, numbers.next()?) {
        (0, 0) => Some(Ok(())),
        (1, number) => Some(Err(Refused::Entry(error(number)?))),
        (2, number) => Some(Err(Refused::Making(error(number)?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_wanted() -> impl Strategy<Value = Wanted> {
        let attached = (any::<u32>(), any::<bool>()).prop_map(|(interface, native)| {
            let hook = if native { Hook::Native } else { Hook::Generic };
            Wanted::Attached { interface, hook }
        });
        let plain = [Wanted::Tap, Wanted::Links, Wanted::Changes, Wanted::Packet, Wanted::Xdp];
        prop_oneof![proptest::sample::select(plain.to_vec()).boxed(), attached.boxed()]
    }

    /// Returns a request with some bytes changed.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let damage = proptest::collection::vec((0..REQUEST, any::<u8>()), 1..4);
        ("[a-z/]{1,9}", any_wanted(), damage).prop_map(|(path, wanted, damage)| {
            let mut bytes = encode(Path::new(&path), wanted).unwrap().to_vec();
            damage.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            bytes
        })
    }

    proptest! {
        #[test]
        fn a_request_is_read_as_it_was_written(
            path in proptest::collection::vec(1u8.., 1..PATH),
            wanted in any_wanted(),
        ) {
            let path = PathBuf::from(OsStr::from_bytes(&path));
            let bytes = encode(&path, wanted).unwrap();
            prop_assert_eq!(decode(&bytes), Some((path, wanted)));
        }

        /// Decoding accepts only what encoding writes: a request has no second form.
        #[test]
        fn arbitrary_bytes_are_refused_or_are_a_request(
            bytes in prop_oneof![damaged().boxed(), proptest::collection::vec(any::<u8>(), 0..9000).boxed()],
        ) {
            if let Some((path, wanted)) = decode(&bytes) {
                prop_assert_eq!(&encode(&path, wanted).unwrap()[..], &bytes);
            }
        }

        #[test]
        fn an_answer_has_one_form(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..10)) {
            if let Some(answer) = decode_answer(&bytes) {
                prop_assert_eq!(&encode_answer(&answer)[..], &bytes);
            }
        }
    }

    #[test]
    fn paths_that_do_not_fit_are_not_asked_for() {
        for path in ["", "a\0b", &"x".repeat(PATH)] {
            assert_eq!(encode(Path::new(path), Wanted::Tap), None);
        }
        for program in [Wanted::Steering, Wanted::Judge] {
            assert_eq!(encode(Path::new("/n"), program), None);
            let request = encode(Path::new(""), program).unwrap();
            assert_eq!(decode(&request), Some((PathBuf::new(), program)));
        }
    }

    #[test]
    fn errors_that_are_none_of_the_kernel_s_are_told_as_one() {
        let told = encode_answer(&Err::<(), _>(Refused::Making(io::Error::other("no thread"))));
        let Some(Err(Refused::Making(error))) = decode_answer(&told) else { panic!("{told:?}") };
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
