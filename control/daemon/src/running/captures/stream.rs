//! Carries a capture from its thread to the client's connection: a bounded queue of chunks.
//!
//! If the client is slow, the capture's thread waits, its own queue fills, and workers count frames
//! as missed. When the connection ends, this end of the queue is dropped, and the thread ends at
//! its next write.

use hyper::body::{Body, Bytes, Frame};
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Chunks in the queue, of at most 256 KiB each.
const CHUNKS: usize = 16;

/// The end that the capture's thread writes to.
pub(super) struct ToClient(Sender<Bytes>);

/// The response's body.
pub(crate) struct CaptureStream {
    chunks: Receiver<Bytes>,
    gone: Gone,
    /// Counts the live streams.
    _live: Arc<()>,
}

/// Whether the client has disconnected.
#[derive(Clone, Default)]
pub(super) struct Gone(Arc<AtomicBool>);

impl Gone {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Both ends of a queue. The client's end holds `live` while its connection lasts.
pub(super) fn queue(live: Arc<()>) -> (ToClient, CaptureStream, Gone) {
    let (to_client, chunks) = channel(CHUNKS);
    let gone = Gone::default();
    (ToClient(to_client), CaptureStream { chunks, gone: gone.clone(), _live: live }, gone)
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has disconnected"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Body for CaptureStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.chunks.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        self.gone.0.store(true, Ordering::Relaxed);
    }
}
