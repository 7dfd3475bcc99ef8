//! The load as NTttcp makes it (`-l 64k`): each connection writes, and reads, 64 KiB at a time as fast as it can.
//!
//! Unlike an NTttcp run it has no end: an experiment cuts its intervals out of connections that keep running while the
//! feature under test is switched. What counts is what the receiving application has read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// NTttcp's `-l 64k`.
const BUFFER: usize = 64 * 1024;
/// A receiver that does not answer by then cannot be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What connections have given to the application.
#[derive(Default)]
pub(super) struct Received {
    bytes: AtomicU64,
    connections: AtomicU32,
}

impl Received {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

/// Accepts connections for ever and reads each on a thread of its own.
pub(super) fn receive(listener: TcpListener, received: Arc<Received>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let received = received.clone();
            std::thread::spawn(move || {
                received.connections.fetch_add(1, Relaxed);
                drain(stream, &received.bytes);
                received.connections.fetch_sub(1, Relaxed);
            });
        }
    });
}

fn drain(mut stream: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        bytes.fetch_add(count as u64, Relaxed);
    }
}

/// Connections that send until they are dropped.
#[derive(Default)]
pub(super) struct Sending {
    streams: Mutex<Vec<TcpStream>>,
}

impl Sending {
    /// Opens connections, and sends on each on a thread of its own.
    pub(super) fn start(&self, to: SocketAddr, connections: u32) -> io::Result<()> {
        for _ in 0..connections {
            let mut stream = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)?;
            self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.try_clone()?);
            std::thread::spawn(move || {
                let buffer = vec![b'A'; BUFFER];
                while stream.write_all(&buffer).is_ok() {}
            });
        }
        Ok(())
    }

    /// Ends all connections.
    pub(super) fn stop(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_counted_and_stopping_ends_the_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (received, sending) = (Arc::new(Received::default()), Sending::default());
        receive(listener, received.clone());
        sending.start(address, 3).unwrap();
        while received.connections() < 3 || received.bytes() < 1 << 20 {
            std::thread::yield_now();
        }
        sending.stop();
        while received.connections() > 0 {
            std::thread::yield_now();
        }
    }
}
