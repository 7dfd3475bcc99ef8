//! Runs tasks that wait for the kernel on their own threads, so that they wait at the same time.
//!
//! Making a ring of an AF_PACKET socket waits for an RCU grace period, and closing a socket waits
//! for one or two, 8 to 16 ms each. Threads that wait at the same time share them. So a daemon
//! opens its ports by [`map`] when it starts, and closes them by [`closing`](crate::closing) when
//! it ends.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Most threads at a time.
const THREADS: usize = 64;

/// Time between two calls of what is done meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// The results of some items, or the thread that computes them.
enum Part<'s, R> {
    UnderWay(ScopedJoinHandle<'s, Vec<R>>),
    Done(Vec<R>),
}

/// Returns the results of `work` for each item, in their order. The threads have the caller's
/// namespace and restrictions.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    spread(items, work, drop)
}

/// Does the same, and calls `meanwhile` again and again until all are done.
pub fn map_meanwhile<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut meanwhile: impl FnMut(),
) -> Vec<R> {
    spread(items, work, |done| {
        while done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            meanwhile();
        }
    })
}

/// Starts the threads, and calls `wait` with what closes when the last one ends.
fn spread<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    wait: impl FnOnce(Receiver<()>),
) -> Vec<R> {
    let each = items.len().div_ceil(THREADS).max(1);
    let all = |items: &[T]| items.iter().map(&work).collect::<Vec<R>>();
    if items.len() <= 1 {
        return all(items);
    }
    thread::scope(|scope| {
        let (under_way, done) = mpsc::channel();
        let start = |part| {
            let ends = under_way.clone();
            let all = move || {
                let _ends: Sender<()> = ends;
                all(part)
            };
            match thread::Builder::new().spawn_scoped(scope, all) {
                Ok(thread) => Part::UnderWay(thread),
                // If no thread can be started, the caller does the work.
                Err(_) => Part::Done(part.iter().map(&work).collect()),
            }
        };
        let parts: Vec<_> = items.chunks(each).map(start).collect();
        drop(under_way);
        wait(done);
        parts.into_iter().flat_map(Part::result).collect()
    })
}

impl<R> Part<'_, R> {
    fn result(self) -> Vec<R> {
        match self {
            Part::UnderWay(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Part::Done(results) => results,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for count in [0, 1, 2, THREADS, 3 * THREADS + 1] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item + 1), (1..=count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_caller_does_something_else_until_all_are_done() {
        let (go, goes) = mpsc::channel();
        let (goes, mut calls) = (Mutex::new(goes), 0);
        let waits = |item: &usize| goes.lock().unwrap().recv().map(|()| *item);
        let results = map_meanwhile(&[1, 2, 3], waits, || {
            calls += 1;
            // The last one may be done already.
            let _ = go.send(());
        });
        assert_eq!(results, [Ok(1), Ok(2), Ok(3)]);
        assert!(calls >= 3, "{calls}");
        assert_eq!(map_meanwhile(&[1], |item| item + 1, || calls = 0), [2]);
    }

    /// One after another, the first item would wait for ever.
    #[test]
    fn items_wait_at_the_same_time() {
        let all = Barrier::new(3);
        let leaders = map(&[(); 3], |()| all.wait().is_leader());
        assert_eq!(leaders.iter().filter(|is_leader| **is_leader).count(), 1);
    }
}
