//! A message with at most one descriptor, as sent to systemd's notify socket and to a successor.

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest text, in bytes.
const LONGEST: usize = 4096;

/// Sends a message.
///
/// # Errors
/// The socket refuses it, or the other side is gone.
pub fn send(socket: impl AsFd, text: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files = file.as_slice();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message; `None` if the other side has closed the connection.
///
/// # Errors
/// The socket cannot be read, or its timeout passes.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(String, Option<OwnedFd>)>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    if received.bytes == 0 {
        return Ok(None);
    }
    let text = bytes.get(..received.bytes).unwrap_or_default();
    Ok(Some((String::from_utf8_lossy(text).into_owned(), file)))
}
