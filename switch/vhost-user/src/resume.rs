// UNSAFETY: gives the `vhost` crate's handler, which has no such method, another connection under
// its descriptor's number.
//! Resumes a session that another process has served, from its record. The front end's connection
//! continues.
#![allow(unsafe_code)]

use crate::backend::{Backend, ResumeError};
use crate::carrier::Reader;
use crate::session::{Conversation, Shared};
use crate::socket::is_unix_stream;
use rustix::io::{DupFlags, dup3};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use vhost::vhost_user::BackendReqHandler;

/// Version 1 of the protocol.
const REQUEST: u32 = 1;

/// Resumes a session. Its rings run when this returns. Fails if the record cannot be read, or its
/// connection or one of its rings cannot be used.
pub(crate) fn resume(
    shared: &Arc<Shared>,
    record: &OwnedFd,
) -> Result<(Conversation, UnixStream), ResumeError> {
    let mut backend = Backend::new(shared.clone());
    let connection = connection(backend.resume(Reader::open(record)?)?)?;
    let (features, protocol) = backend.agreed();
    let backend = Arc::new(Mutex::new(backend));
    let (ours, its) = UnixStream::pair()?;
    let mut handler = BackendReqHandler::from_stream(its, backend.clone());
    for message in greeting(features, protocol) {
        (&ours).write_all(&message)?;
        handler.handle_request()?;
    }
    reconnect(&handler, &connection)?;
    Ok((Conversation { backend, handler }, connection))
}

fn connection(file: OwnedFd) -> io::Result<UnixStream> {
    let is_stream = is_unix_stream(&file)?;
    let connection = UnixStream::from(file);
    // A listening socket has no peer.
    connection.peer_addr()?;
    connection.set_nonblocking(false)?;
    is_stream.then_some(connection).ok_or_else(|| io::Error::other("it is no Unix stream"))
}

/// Returns the messages that tell the `vhost` crate's handler the acknowledged features, by which
/// it decides what to accept and to acknowledge.
fn greeting(features: u64, protocol: u64) -> [Vec<u8>; 4] {
    // GET_FEATURES, SET_FEATURES, GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES.
    let messages = [(1, None), (2, Some(features)), (15, None), (16, Some(protocol))];
    messages.map(|(number, body)| {
        let size = if body.is_some() { 8 } else { 0 };
        let head = [number, REQUEST, size].map(u32::to_ne_bytes);
        let body = body.map(u64::to_ne_bytes);
        [head.as_flattened(), body.as_ref().map_or(&[][..], |body| body)].concat()
    })
}

/// Makes the handler read from this connection.
fn reconnect(
    handler: &BackendReqHandler<Mutex<Backend>>,
    connection: &UnixStream,
) -> io::Result<()> {
    // SAFETY: the handler owns this descriptor for as long as it is there, so the number is valid
    // and no other file's; it is not closed here, and what it stands for is replaced in one step,
    // while nothing else uses the handler.
    let mut own = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(handler.as_raw_fd()) });
    Ok(dup3(connection, &mut own, DupFlags::CLOEXEC)?)
}
