//! Closes files that a front end sent with a refused message.
//!
//! A file system in user space can block a close for as long as it likes. So separate threads do
//! it, at most [`MOST`] at a time. If all of them are blocked, the caller closes the file: that is
//! the thread of the session that sent it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most threads of the process that close files at a time.
const MOST: usize = 8;

/// Number of threads that close files now.
struct Closers(AtomicUsize);

static CLOSERS: Closers = Closers(AtomicUsize::new(0));

/// Closes files on another thread if [`MOST`] allows one more, and else on this one.
pub(crate) fn close_aside(files: impl Send + 'static) {
    CLOSERS.close(files);
}

impl Closers {
    fn close(&'static self, files: impl Send + 'static) {
        if self.0.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return drop(files);
        }
        let closer = thread::Builder::new().name("vhost-close".into());
        let spawned = closer.spawn(|| {
            drop(files);
            self.0.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use std::time::Duration;

    /// A file with a close that blocks until the gate's other end is dropped, unless the test's own
    /// thread closes it. It sends the id of the thread that closes it.
    struct Slow {
        gate: Receiver<()>,
        tests: ThreadId,
        told: Sender<ThreadId>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let closer = thread::current().id();
            self.told.send(closer).unwrap();
            if closer != self.tests {
                let _ = self.gate.recv();
            }
        }
    }

    #[test]
    fn files_are_closed_by_so_many_other_threads_and_then_by_the_caller() {
        static CLOSERS: Closers = Closers(AtomicUsize::new(0));
        let (told, closed) = channel();
        let next = move || closed.recv_timeout(Duration::from_secs(10)).unwrap();
        let own = thread::current().id();
        let slow = || {
            let (open, gate) = channel();
            (open, Slow { gate, tests: own, told: told.clone() })
        };
        let gates: Vec<_> = (0..MOST)
            .map(|_| {
                let (open, file) = slow();
                CLOSERS.close(file);
                assert_ne!(next(), own);
                open
            })
            .collect();
        CLOSERS.close(slow().1);
        assert_eq!(next(), own);
        drop(gates);
        while CLOSERS.0.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        CLOSERS.close(slow().1);
        assert_ne!(next(), own);
    }
}
