//! A transfer that is checked: one TCP connection on which the receiver knows every byte
//! beforehand.

use crate::host::Host;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A connection without progress for this time has died.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes written and checked at once; a multiple of 8.
const CHUNK: usize = 64 << 10;

/// Sends `bytes` (a multiple of 64 KiB) from one host to another that listens on `address`, and
/// repeats `meanwhile` until the last byte has arrived and all were right. Returns how often
/// `meanwhile` ran: at least once.
pub(crate) fn transfer_while(
    (from, to, address): (Host, Host, IpAddr),
    bytes: usize,
    mut meanwhile: impl FnMut(),
) -> u32 {
    let listener = to.within(|| TcpListener::bind((address, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seed = 1 + u64::from(port);
    let receiver =
        thread::spawn(move || check(listener.accept().unwrap().0, seed, &AtomicUsize::new(0)));
    let mut chunks = bytes / CHUNK;
    let goes_on = move || chunks.checked_sub(1).map(|rest| chunks = rest).is_some();
    let sender = thread::spawn(move || {
        send(from.within(|| TcpStream::connect((address, port))).unwrap(), goes_on, seed);
    });
    let mut times = 0;
    while times == 0 || !(sender.is_finished() && receiver.is_finished()) {
        meanwhile();
        times += 1;
    }
    sender.join().unwrap();
    assert_eq!(receiver.join().unwrap(), bytes, "all that was sent has come");
    times
}

/// Sends from one host to another for as long as `work` takes, and checks every byte of the
/// connection. Returns the number of bytes. `work` gets a function that returns how many were
/// checked so far.
pub(crate) fn transfer_during(
    route: (Host, Host, IpAddr),
    work: impl FnOnce(&dyn Fn() -> usize),
) -> usize {
    let stream = Stream::start(route, Duration::ZERO);
    work(&|| stream.checked());
    stream.end()
}

/// A transfer that goes on until it is told to end.
pub(crate) struct Stream {
    is_done: Arc<AtomicBool>,
    checked: Arc<AtomicUsize>,
    sender: JoinHandle<usize>,
    receiver: JoinHandle<usize>,
}

impl Stream {
    /// Starts to send from one host to another, with a pause before each 64 KiB.
    pub(crate) fn start((from, to, address): (Host, Host, IpAddr), pause: Duration) -> Stream {
        let listener = to.within(|| TcpListener::bind((address, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seed = 1 + u64::from(port);
        let is_done = Arc::new(AtomicBool::new(false));
        let stop = is_done.clone();
        let checked = Arc::new(AtomicUsize::new(0));
        let count = checked.clone();
        let receiver = thread::spawn(move || check(listener.accept().unwrap().0, seed, &count));
        let sender = thread::spawn(move || {
            let goes_on = || {
                thread::sleep(pause);
                !stop.load(Ordering::Relaxed)
            };
            send(from.within(|| TcpStream::connect((address, port))).unwrap(), goes_on, seed)
        });
        Stream { is_done, checked, sender, receiver }
    }

    /// Returns how many bytes were checked so far.
    pub(crate) fn checked(&self) -> usize {
        self.checked.load(Ordering::Relaxed)
    }

    /// Returns whether both ends still work.
    pub(crate) fn goes_on(&self) -> bool {
        !self.sender.is_finished() && !self.receiver.is_finished()
    }

    /// Ends the transfer. All sent bytes must have come. Returns their number.
    pub(crate) fn end(self) -> usize {
        self.is_done.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        assert_eq!(self.receiver.join().unwrap(), sent, "all that was sent has come");
        sent
    }
}

/// Transfers bytes with nothing else going on.
pub(crate) fn transfer(route: (Host, Host, IpAddr), bytes: usize) {
    transfer_while(route, bytes, || thread::sleep(Duration::from_millis(5)));
}

fn send(mut stream: TcpStream, mut goes_on: impl FnMut() -> bool, seed: u64) -> usize {
    stream.set_write_timeout(Some(SOCKET_TIMEOUT)).unwrap();
    let mut pattern = Pattern(seed);
    let mut chunk = vec![0; CHUNK];
    let mut sent = 0;
    while goes_on() {
        pattern.fill(&mut chunk);
        stream.write_all(&chunk).expect("the connection takes bytes");
        sent += CHUNK;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    sent
}

/// Reads to the end and checks the bytes. Returns their number.
fn check(mut stream: TcpStream, seed: u64, checked: &AtomicUsize) -> usize {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT)).unwrap();
    let mut pattern = Pattern(seed);
    let (mut wanted, mut seen) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut came = 0;
    loop {
        // Only the last read is shorter than a chunk.
        let mut len = 0;
        while len < CHUNK {
            match stream.read(&mut seen[len..]) {
                Ok(0) => break,
                Ok(more) => len += more,
                // The process was stopped for a while.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection brings no bytes: {error}"),
            }
        }
        pattern.fill(&mut wanted);
        assert!(
            seen[..len] == wanted[..len],
            "the bytes from {came} on are not those that were sent"
        );
        came += len;
        checked.store(came, Ordering::Relaxed);
        if len < CHUNK {
            return came;
        }
    }
}

/// Numbers by Marsaglia's xorshift (2003): no two positions of a stream share one.
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
