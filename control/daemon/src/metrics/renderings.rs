//! One rendering of the metrics for all clients that ask within half a second.
//!
//! With 1,000 ports a rendering has 4 MB, and a client may take as long as it likes to read one. So
//! responses do not own it: they copy it piece by piece from the newest few, and a client that is
//! slower than that is cut off.

use super::{Exposition, read};
use crate::recent::Recent;
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use problem::Problem;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

/// Renderings that are kept for clients that still read: at least 4 s.
const KEPT: usize = 8;
/// Longest piece, in bytes. A connection has up to 16 of them that its client has not read.
const PIECE: usize = 8 << 10;

/// The newest renderings.
#[derive(Default)]
pub(crate) struct Renderings {
    last: Recent<Result<Arc<Exposition>, Problem>>,
    kept: Mutex<VecDeque<Arc<Exposition>>>,
}

impl Renderings {
    /// Answers a request with metrics at most half a second old.
    ///
    /// # Errors
    /// A metric cannot be written, or the switch's thread has ended.
    pub(crate) async fn answer(
        &self,
        shared: &Shared,
        headers: &HeaderMap,
    ) -> Result<Response, Problem> {
        let make = async || read(shared).await.map(|made| self.keep(made));
        let newest = self.last.answer(Instant::now(), make, Result::clone).await?;
        Ok(newest.response_with(headers, |text| {
            Body::new(Pieces { of: Arc::downgrade(&newest), text, at: 0, end: text(&newest).len() })
        }))
    }

    fn keep(&self, made: Exposition) -> Arc<Exposition> {
        let made = Arc::new(made);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.push_front(Arc::clone(&made));
        made
    }
}

/// A body that is copied from a rendering while that is kept.
struct Pieces {
    of: Weak<Exposition>,
    text: fn(&Exposition) -> &Bytes,
    at: usize,
    end: usize,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.at == self.end {
            return Poll::Ready(None);
        }
        let Some(whole) = self.of.upgrade() else {
            let slow = "the client reads slower than metrics are made";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, slow))));
        };
        let piece = self.at..self.end.min(self.at + PIECE);
        let copy = Bytes::copy_from_slice((self.text)(&whole).get(piece.clone()).unwrap_or(&[]));
        self.at = piece.end;
        Poll::Ready(Some(Ok(Frame::data(copy))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.end - self.at) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn of(made: &Arc<Exposition>) -> Body {
        let text = Exposition::text;
        Body::new(Pieces { of: Arc::downgrade(made), text, at: 0, end: text(made).len() })
    }

    /// 8 readers with 32 connections each held 1 GiB: every response was a rendering of its own.
    #[test]
    fn a_response_is_whole_while_its_rendering_is_kept_and_holds_none() {
        let renderings = Renderings::default();
        let page = "metric 1\n".repeat(PIECE / 4);
        let make = || renderings.keep(Exposition::of(page.clone()));
        let made = make();
        let whole = wait(to_bytes(of(&made), usize::MAX)).unwrap();
        assert_eq!(whole, page);
        let (held, slow) = (Arc::downgrade(&made), of(&made));
        drop(made);
        (1..KEPT).for_each(|_| drop(make()));
        assert!(held.upgrade().is_some());
        drop(make());
        assert!(held.upgrade().is_none(), "the response holds it");
        assert!(wait(to_bytes(slow, usize::MAX)).is_err());
    }
}
