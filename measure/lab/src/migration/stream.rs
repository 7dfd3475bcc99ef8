//! A stream that detects errors: the bytes that the guest returns are compared with the bytes sent,
//! over one connection that lasts through all migrations.

use crate::LabError;
use crate::interrupt::Interrupt;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes per write.
const CHUNK: usize = 25_000;
/// Time between two writes: 20 Mbit/s at most.
const WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of the bytes in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A running stream; dropping it closes the connection.
pub(super) struct Stream {
    shared: Arc<Shared>,
    connection: TcpStream,
    threads: [JoinHandle<()>; 2],
}

/// Counters that the two threads write and the bench reads, and a flag that the bench sets.
#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    returned: AtomicU64,
    wrong: AtomicU64,
    pauses: AtomicBool,
}

/// Counts of bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Bytes that the guest returned.
    pub(super) returned: u64,
    /// Returned bytes that differ from those sent.
    pub(super) wrong: u64,
    /// Bytes sent but not returned.
    pub(super) missing: u64,
}

impl Stream {
    /// Starts a stream over a connection whose other end returns what it receives.
    ///
    /// # Errors
    /// The connection cannot be configured.
    pub(super) fn start(connection: TcpStream) -> std::io::Result<Stream> {
        connection.set_nodelay(true)?;
        let (writes, reads) = (connection.try_clone()?, connection.try_clone()?);
        let shared: Arc<Shared> = Arc::default();
        let (of_writer, of_reader) = (shared.clone(), shared.clone());
        let threads = [
            std::thread::spawn(move || write(writes, &of_writer)),
            std::thread::spawn(move || read(reads, &of_reader)),
        ];
        Ok(Stream { shared, connection, threads })
    }

    /// Pauses sending until all bytes in flight have returned, for at most [`DRAIN_TIMEOUT`].
    /// Returns the counts.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn settle(&self, interrupt: &Interrupt) -> Result<Bytes, LabError> {
        self.pause(true);
        // A write in progress is already counted as sent.
        let all = || {
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err(LabError::Machine("the stream broke off".into()));
            }
            Ok((self.bytes().missing == 0).then_some(()))
        };
        interrupt.pass(2 * WRITE_INTERVAL)?;
        interrupt.wait_for(DRAIN_TIMEOUT, all)?;
        let bytes = self.bytes();
        self.pause(false);
        Ok(bytes)
    }

    /// Pauses or resumes sending.
    pub(super) fn pause(&self, pauses: bool) {
        self.shared.pauses.store(pauses, Relaxed);
    }

    fn bytes(&self) -> Bytes {
        let Shared { sent, returned, wrong, .. } = &*self.shared;
        let returned = returned.load(Relaxed);
        let missing = sent.load(Relaxed).saturating_sub(returned);
        Bytes { returned, wrong: wrong.load(Relaxed), missing }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Both threads end with the connection.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

/// Returns the byte at a position of the stream.
fn byte(place: u64) -> u8 {
    let mixed = (place / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed.to_le_bytes()[usize::try_from(place % 8).unwrap_or_default()]
}

fn write(mut connection: TcpStream, shared: &Shared) {
    loop {
        std::thread::sleep(WRITE_INTERVAL);
        if shared.pauses.load(Relaxed) {
            continue;
        }
        let first = shared.sent.fetch_add(CHUNK as u64, Relaxed);
        let chunk: Vec<u8> = (first..first + CHUNK as u64).map(byte).collect();
        if connection.write_all(&chunk).is_err() {
            return;
        }
    }
}

fn read(mut connection: TcpStream, shared: &Shared) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count @ 1..) = connection.read(&mut bytes) {
        let first = shared.returned.load(Relaxed);
        let wanted = (first..).map(byte);
        let wrong = bytes.iter().take(count).zip(wanted).filter(|(byte, wanted)| *byte != wanted);
        shared.wrong.fetch_add(wrong.count() as u64, Relaxed);
        shared.returned.fetch_add(count as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Returns the counts of a stream whose other end changes the bytes with `spoil`.
    fn through(mut spoil: impl FnMut(&mut Vec<u8>) + Send + 'static) -> Result<Bytes, LabError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; CHUNK];
            while let Ok(count @ 1..) = other.read(&mut bytes) {
                let mut chunk = bytes[..count].to_vec();
                spoil(&mut chunk);
                if chunk.is_empty() || other.write_all(&chunk).is_err() {
                    return;
                }
            }
        });
        let stream = Stream::start(connection).unwrap();
        let interrupt = Interrupt::default();
        // A broken stream sends no more bytes.
        let has_ended = || stream.threads.iter().any(JoinHandle::is_finished);
        while stream.shared.sent.load(Relaxed) < 4 * CHUNK as u64 && !has_ended() {
            interrupt.pass(WRITE_INTERVAL).unwrap();
        }
        stream.settle(&interrupt)
    }

    #[test]
    fn one_byte_that_is_another_is_counted_and_an_end_is_an_error() {
        let whole = through(|_| ()).unwrap();
        assert!(whole.returned >= 4 * CHUNK as u64 && whole.wrong == 0 && whole.missing == 0);
        let mut once = true;
        let spoilt = through(move |bytes| {
            if std::mem::take(&mut once) {
                bytes[7] ^= 1;
            }
        });
        assert_eq!(spoilt.unwrap().wrong, 1);
        assert!(through(Vec::clear).is_err());
    }
}
