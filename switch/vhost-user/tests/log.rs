//! What front ends can make a session log. A process of its own, since it has one subscriber.
#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tempfile::TempDir;
use test_guest::Guest;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use vhost_user::{Features, Session, State};
use virtqueue::Limit;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Counts this crate's lines.
struct Count;

impl Subscriber for Count {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("vhost_user")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        LINES.fetch_add(1, SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One that moves a frame each time never had to wait.
#[test]
fn a_front_end_that_comes_and_goes_logs_so_many_lines() {
    tracing::subscriber::set_global_default(Count).unwrap();
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(support::options(&socket, 1)).unwrap();
    let (_receive, send) = session.pair(0).unwrap();
    for _ in 0..20 {
        let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
        guest.send(0, &[0; 12], &[0; 60]);
        send.with(|running| {
            running.queue.take(Limit { chains: 1, bytes: usize::MAX }).unwrap();
            running.queue.complete(usize::MAX);
        });
        drop(guest);
        waiting::until("the guest has gone", || session.status().state == State::Waiting);
    }
    let lines = LINES.load(SeqCst);
    // A machine that takes minutes for this is told one more each.
    assert!((10..20).contains(&lines), "{lines} lines by 20 connections");
}
