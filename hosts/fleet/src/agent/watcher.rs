//! The thread that watches etcd and signals to the agent that there is something to read.

use super::backoff::Backoff;
use crate::etcd::{Access, Etcd, Watched};
use crate::store::WATCHED;
use problem::Problem;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A watch that is silent for this long is renewed, as its other end may be gone.
const SILENCE: Duration = Duration::from_secs(300);

/// A signal to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Something changed, or may have.
    Changed,
    /// Changes before this revision of etcd were compacted away, so the whole desired state has to
    /// be read.
    Compacted(i64),
    /// The host's part in a check of MTUs has an answer to write; there is nothing to read.
    Answer,
}

/// Starts the thread. It ends with the process, or once the receiver of the news is gone.
pub(super) fn start(access: &Arc<Access>, news: Sender<News>) -> Result<(), Problem> {
    let access = Arc::clone(access);
    let watch = move || {
        // Without a client nothing is watched: the agent reads from time to time.
        if let Ok(etcd) = Etcd::new(access) {
            watch(&etcd, &news);
        }
    };
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(watch)
        .map(drop)
        .map_err(|error| Problem::new("the thread that watches etcd cannot be started").seen(error))
}

fn watch(etcd: &Etcd, news: &Sender<News>) {
    let (mut backoff, last, gone) = (Backoff::default(), Cell::new(0), Cell::new(false));
    while !gone.get() {
        let stood = Cell::new(false);
        let tell = |it| gone.set(gone.get() || news.send(it).is_err());
        let error = etcd.watch(WATCHED, from(etcd, last.get()), SILENCE, |watched| match watched {
            Watched::Begun => {
                stood.set(true);
                tell(News::Changed);
            }
            Watched::Changed(revision) => {
                last.set(revision);
                tell(News::Changed);
            }
            Watched::Compacted(revision) => {
                last.set(0);
                tell(News::Compacted(revision));
            }
        });
        tracing::debug!("watching etcd: {error}");
        if stood.get() {
            backoff.succeeded();
        }
        std::thread::sleep(backoff.failed(Instant::now()));
    }
}

/// Returns the revision to watch from: the one after the last signalled, or 0 (now) if this etcd, a
/// restored backup, has not reached that.
fn from(etcd: &Etcd, last: i64) -> i64 {
    match etcd.get(WATCHED.0) {
        Ok(found) if last > 0 && found.revision >= last => last + 1,
        _ => 0,
    }
}
