//! A transfer that proves itself: one TCP connection whose every byte the receiver knows beforehand.

use crate::host::Host;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// A connection on which nothing moves for so long has died.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes written and checked at once; a multiple of 8.
const CHUNK: usize = 64 << 10;

/// Sends `bytes` (a multiple of 64 KiB) from one host to another that listens on `address`, and does `meanwhile` again
/// and again until the last one has arrived as it was sent. Returns how often it was done: once at least.
pub(crate) fn transfer_while(
    (from, to, address): (Host, Host, IpAddr),
    bytes: usize,
    mut meanwhile: impl FnMut(),
) -> u32 {
    let listener = to.within(|| TcpListener::bind((address, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seed = 1 + u64::from(port);
    let receiver = thread::spawn(move || check(listener.accept().unwrap().0, bytes, seed));
    let sender = thread::spawn(move || {
        send(from.within(|| TcpStream::connect((address, port))).unwrap(), bytes, seed);
    });
    let mut times = 0;
    while times == 0 || !(sender.is_finished() && receiver.is_finished()) {
        meanwhile();
        times += 1;
    }
    sender.join().unwrap();
    receiver.join().unwrap();
    times
}

/// The same with nothing going on.
pub(crate) fn transfer(route: (Host, Host, IpAddr), bytes: usize) {
    transfer_while(route, bytes, || thread::sleep(Duration::from_millis(5)));
}

fn send(mut stream: TcpStream, bytes: usize, seed: u64) {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut pattern = Pattern(seed);
    let mut chunk = vec![0; CHUNK];
    for _ in 0..bytes / CHUNK {
        pattern.fill(&mut chunk);
        stream.write_all(&chunk).expect("the connection takes bytes");
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn check(mut stream: TcpStream, bytes: usize, seed: u64) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut pattern = Pattern(seed);
    let (mut wanted, mut seen) = (vec![0; CHUNK], vec![0; CHUNK]);
    for chunk in 0..bytes / CHUNK {
        pattern.fill(&mut wanted);
        stream.read_exact(&mut seen).expect("the connection brings bytes");
        assert!(seen == wanted, "the bytes of 64 KiB number {chunk} are not those that were sent");
    }
    assert_eq!(stream.read(&mut seen).unwrap(), 0, "more came than was sent");
}

/// Numbers by Marsaglia's xorshift (2003), which no two places of a stream share.
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, chunk: &mut [u8]) {
        for word in chunk.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}
