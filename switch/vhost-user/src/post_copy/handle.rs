//! A session's hold on its ferry. Dropping it ends the ferry.

use super::link::Link;
use super::order::Order;
use rustix::event::Timespec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// How long an answer may take: the ferry may wait for a page meanwhile.
const ANSWER: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Used by the session's thread alone.
#[derive(Debug)]
pub(crate) struct Ferry {
    link: Link,
    /// Readable when the session has to end.
    stop: OwnedFd,
    has_failed: AtomicBool,
}

impl Ferry {
    pub(super) fn new(link: Link, stop: OwnedFd) -> Ferry {
        Ferry { link, stop, has_failed: AtomicBool::new(false) }
    }

    /// Has an order carried out. Returns the number in its answer.
    ///
    /// # Errors
    /// The order is refused, the ferry waits for a page for too long or has ended, or the session
    /// has to end. After each but the first nothing is asked any more.
    pub(crate) fn ask(&self, order: &Order) -> io::Result<u64> {
        if self.has_failed() {
            return Err(io::Error::other("the process that waits for the guest's pages has ended"));
        }
        let answered = self.exchange(order);
        if answered.is_err() {
            self.abandon();
        }
        match answered? {
            (0, number) => Ok(number),
            _ => Err(io::Error::other("it does not fit the memory that was given")),
        }
    }

    fn exchange(&self, order: &Order) -> io::Result<(u64, u64)> {
        self.link.send(order.write())?;
        if !self.link.is_ready(&self.stop, &ANSWER) {
            return Err(io::Error::other(format!(
                "a page of the guest's memory did not arrive within {} s: does the source still send?",
                ANSWER.tv_sec
            )));
        }
        let ended = || io::Error::other("the process that waits for the guest's pages has ended");
        let mut answer = self.link.receive()?.ok_or_else(ended)?;
        let outcome = answer.number().map_err(io::Error::other)?;
        let number = if outcome == 0 { answer.number().map_err(io::Error::other)? } else { 0 };
        answer.close().map_err(io::Error::other)?;
        Ok((outcome, number))
    }

    /// Ends the ferry at once, also while it waits for a page.
    pub(crate) fn abandon(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.link.shut_down();
    }

    /// Whether nothing can be asked any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl AsFd for Ferry {
    /// Readable between orders only if the ferry has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::Writer;
    use rustix::event::{EventfdFlags, eventfd};
    use std::thread;

    /// Returns what a session is told, and whether it asks again, by a ferry that answers so, or
    /// closes its end.
    fn told(answer: Option<&[u64]>) -> (Option<u64>, bool) {
        let (ours, its) = Link::pair().unwrap();
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let ferry = Ferry::new(ours, stop);
        thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let order = its.receive().unwrap().unwrap();
                assert!(matches!(Order::read(order), Ok(Order::Stop(7))));
                if let Some(numbers) = answer {
                    let mut record = Writer::default();
                    numbers.iter().for_each(|number| record.number(*number));
                    its.send(record).unwrap();
                    return Some(its);
                }
                drop(its);
                None
            });
            let told = ferry.ask(&Order::Stop(7)).ok();
            drop(answering.join().unwrap());
            (told, !ferry.has_failed())
        })
    }

    /// A front end may have taken it over.
    #[test]
    fn a_ferry_that_answers_nonsense_or_ends_is_asked_no_more() {
        assert_eq!(told(Some(&[0, 5])), (Some(5), true));
        assert_eq!(told(Some(&[1])), (None, true), "a refusal is an answer");
        let nonsense: [&[u64]; 4] = [&[], &[0], &[0, 5, 5], &[1, 5]];
        for answer in nonsense {
            assert_eq!(told(Some(answer)), (None, false), "{answer:?}");
        }
        assert_eq!(told(None), (None, false));
    }

    #[test]
    fn a_session_that_has_to_end_waits_for_no_answer() {
        let (ours, _its) = Link::pair().unwrap();
        let stop = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let ferry = Ferry::new(ours, stop);
        ferry.ask(&Order::Listen).unwrap_err();
        assert!(ferry.has_failed());
    }
}
