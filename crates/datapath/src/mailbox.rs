//! Letters from the control plane to a worker, which reads them between rounds.
//!
//! A worker reads one flag a round. The control plane sets it when it posts a letter, and then wakes the worker. A letter that must be
//! acknowledged carries a reply channel.

#[cfg(loom)]
use loom::sync::{Mutex, atomic::AtomicBool, atomic::Ordering};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, atomic::AtomicBool, atomic::Ordering};

/// Letters for one worker.
pub(crate) struct Mailbox<Letter> {
    waiting: AtomicBool,
    letters: Mutex<Vec<Letter>>,
}

impl<Letter> Mailbox<Letter> {
    pub(crate) fn new() -> Mailbox<Letter> {
        Mailbox { waiting: AtomicBool::new(false), letters: Mutex::new(Vec::new()) }
    }

    /// Adds a letter. The caller wakes the worker afterwards.
    pub(crate) fn post(&self, letter: Letter) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        // Pairs with the swap in `collect`: a worker that sees the flag finds the letter.
        self.waiting.store(true, Ordering::Release);
    }

    /// Whether a letter is pending. A worker calls this after arming its wake-up, before it sleeps.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes all letters, oldest first.
    pub(crate) fn collect(&self) -> Vec<Letter> {
        // Cleared before the list is emptied: a letter posted after that sets it again.
        self.waiting.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Mailbox;

    #[test]
    fn letters_come_in_order_and_once() {
        let mailbox = Mailbox::new();
        assert!(!mailbox.is_waiting());
        mailbox.post(1);
        mailbox.post(2);
        assert!(mailbox.is_waiting());
        assert_eq!(mailbox.collect(), [1, 2]);
        assert!(!mailbox.is_waiting());
        assert!(mailbox.collect().is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Mailbox;
    use loom::sync::Arc;

    #[test]
    fn no_letter_is_lost_and_none_comes_twice() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new());
            let senders: Vec<_> = [1, 2]
                .map(|letter| {
                    let mailbox = mailbox.clone();
                    loom::thread::spawn(move || mailbox.post(letter))
                })
                .into();
            let mut read = Vec::new();
            if mailbox.is_waiting() {
                read.extend(mailbox.collect());
            }
            for sender in senders {
                sender.join().unwrap();
            }
            // Whatever was not read yet must still be announced.
            if mailbox.is_waiting() {
                read.extend(mailbox.collect());
            }
            read.sort_unstable();
            assert_eq!(read, [1, 2]);
        });
    }
}
