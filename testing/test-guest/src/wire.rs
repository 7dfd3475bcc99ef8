//! Messages of a front end as bytes, without the `vhost` crate: what another front end sends can be
//! sent in its own order.

use crate::GuestError;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Requests of a front end, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Request {
    GetFeatures = 1,
    SetFeatures = 2,
    SetOwner = 3,
    GiveMemory = 5,
    Size = 8,
    Addresses = 9,
    SetBase = 10,
    GetBase = 11,
    Kick = 12,
    Call = 13,
    Error = 14,
    GetProtocol = 15,
    SetProtocol = 16,
    GetQueues = 17,
    Enable = 18,
    SetMtu = 20,
    SetChannel = 21,
    GetConfig = 24,
    GetInflight = 31,
    SetInflight = 32,
    ResetDevice = 34,
    GetSlots = 36,
    AddMemory = 37,
    SetStatus = 39,
    GetStatus = 40,
}

/// Version 1 of the protocol.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Sends a request. With `asks` it has the flag that wants an acknowledgement.
pub(crate) fn send(
    connection: &UnixStream,
    request: Request,
    asks: bool,
    body: &[u8],
    files: &[RawFd],
) -> Result<(), GuestError> {
    let flags = VERSION | if asks { NEED_REPLY } else { 0 };
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let head = [request as u32, flags, len].map(u32::to_ne_bytes);
    let bytes = [head.as_flattened(), body].concat();
    let sent = connection.send_with_fds(&[&bytes[..]], files);
    sent.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    Ok(())
}

/// Waits for the answer to a request. Returns its body, and the file that came with it.
///
/// # Errors
/// The connection ended, or the next message is no answer to this request.
pub(crate) fn answer(
    mut connection: &UnixStream,
    request: Request,
) -> Result<(Vec<u8>, Option<OwnedFd>), GuestError> {
    let mut head = [0; 12];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(connection, &mut [IoSliceMut::new(&mut head)], &mut control, flags)?;
    if received.bytes < head.len() {
        return Err(GuestError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            file = files.next();
        }
    }
    let word = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let (number, flags, len) = (word(0), word(4), word(8));
    if number != request as u32 || flags != VERSION | REPLY {
        let text =
            format!("message {number} with flags {flags:#x} instead of the answer to {request:?}");
        return Err(io::Error::other(text).into());
    }
    let mut body = vec![0; len as usize];
    connection.read_exact(&mut body)?;
    Ok((body, file))
}
