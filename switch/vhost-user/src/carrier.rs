//! Carries numbers and descriptors of a session from one process to the next, as messages that wait
//! in a socket without a peer.
//!
//! So the process that keeps a session, such as a service manager, holds one descriptor, and
//! closing that descriptor ends the session. Its content is not trusted: it is read without
//! waiting, and every number is checked where it is used.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Descriptors of one message; the kernel takes 253.
const FILES: usize = 128;
/// Most messages that are read: as many as the descriptors of the largest session need.
const MESSAGES: usize = 16;
/// Largest message that is read, in bytes.
const LONGEST: usize = 64 << 10;

/// Why a session's record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarrierError {
    #[error("its record cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("its record has version {seen}, this process reads {wanted}")]
    Version { seen: u64, wanted: u64 },
    #[error("its record ends too early")]
    Short,
    #[error("its record has data after its end")]
    Long,
    #[error("its record has an impossible value {0:#x}")]
    Number(u64),
}

impl From<Errno> for CarrierError {
    fn from(error: Errno) -> CarrierError {
        CarrierError::Io(error.into())
    }
}

/// Collects numbers and descriptors, in the order in which a [`Reader`] reads them.
#[derive(Default)]
pub(crate) struct Writer<'f> {
    numbers: Vec<u64>,
    files: Vec<BorrowedFd<'f>>,
}

impl<'f> Writer<'f> {
    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        self.numbers.push(number.into());
    }

    /// Adds a number that may be absent, after a number that says whether it is there.
    pub(crate) fn option(&mut self, number: Option<impl Into<u64>>) {
        self.number(number.is_some());
        number.into_iter().for_each(|number| self.number(number));
    }

    pub(crate) fn file(&mut self, file: BorrowedFd<'f>) {
        self.files.push(file);
    }

    /// Adds a descriptor that may be absent, after a number that says whether it is there.
    pub(crate) fn file_option(&mut self, file: Option<BorrowedFd<'f>>) {
        self.number(file.is_some());
        self.files.extend(file);
    }

    /// Puts everything into a socket, to be read by [`Reader::open`].
    pub(crate) fn close(self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let (write, read) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let bytes: Vec<u8> = self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let (first, rest) = self.files.split_at(self.files.len().min(FILES));
        send(&write, &bytes, first)?;
        rest.chunks(FILES).try_for_each(|files| send(&write, &[0], files))?;
        Ok(read)
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Reads what a [`Writer`] wrote, in the same order.
pub(crate) struct Reader {
    numbers: std::vec::IntoIter<u64>,
    files: std::vec::IntoIter<OwnedFd>,
}

impl Reader {
    /// Reads everything from a socket. Fails if it is larger than a session can be.
    pub(crate) fn open(socket: &OwnedFd) -> Result<Reader, CarrierError> {
        let mut bytes = vec![0; LONGEST];
        let mut files = Vec::new();
        let first = receive(socket, &mut bytes, &mut files)?.unwrap_or_default();
        let (numbers, odd) = bytes.get(..first).unwrap_or_default().as_chunks::<8>();
        if !odd.is_empty() {
            return Err(CarrierError::Long);
        }
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let mut messages = 1;
        while receive(socket, &mut [0; 8], &mut files)?.is_some() {
            messages += 1;
            if messages > MESSAGES {
                return Err(CarrierError::Long);
            }
        }
        Ok(Reader { numbers: numbers.into_iter(), files: files.into_iter() })
    }

    pub(crate) fn number<Number: TryFrom<u64>>(&mut self) -> Result<Number, CarrierError> {
        let number = self.numbers.next().ok_or(CarrierError::Short)?;
        Number::try_from(number).map_err(|_| CarrierError::Number(number))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, CarrierError> {
        match self.number::<u64>()? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(CarrierError::Number(number)),
        }
    }

    pub(crate) fn option<Number: TryFrom<u64>>(&mut self) -> Result<Option<Number>, CarrierError> {
        if self.flag()? { self.number().map(Some) } else { Ok(None) }
    }

    pub(crate) fn file(&mut self) -> Result<OwnedFd, CarrierError> {
        self.files.next().ok_or(CarrierError::Short)
    }

    pub(crate) fn file_option(&mut self) -> Result<Option<OwnedFd>, CarrierError> {
        if self.flag()? { self.file().map(Some) } else { Ok(None) }
    }

    /// Checks that everything was read.
    pub(crate) fn close(mut self) -> Result<(), CarrierError> {
        match (self.numbers.next(), self.files.next()) {
            (None, None) => Ok(()),
            _ => Err(CarrierError::Long),
        }
    }
}

/// Reads the next message, and appends its descriptors to `files`. Returns its bytes; `None` if
/// there is no message.
fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> Result<Option<usize>, CarrierError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            files.extend(more);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(CarrierError::Long);
    }
    Ok((received.bytes > 0).then_some(received.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;

    fn events(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap()).collect()
    }

    #[test]
    fn what_is_written_is_read_in_its_order() {
        for count in [0, 1, FILES, 900] {
            let files = events(count);
            let mut writer = Writer::default();
            writer.number(7u64);
            writer.option(None::<u64>);
            writer.option(Some(u64::MAX));
            files.iter().for_each(|file| writer.file_option(Some(file.as_fd())));
            let mut reader = Reader::open(&writer.close().unwrap()).unwrap();
            assert_eq!(reader.number::<u64>().unwrap(), 7);
            assert_eq!(reader.option::<u64>().unwrap(), None);
            assert_eq!(reader.option::<u64>().unwrap(), Some(u64::MAX));
            for file in &files {
                let same = reader.file_option().unwrap().unwrap();
                rustix::io::write(&same, &3u64.to_ne_bytes()).unwrap();
                let mut seen = [0; 8];
                rustix::io::read(file, &mut seen).unwrap();
                assert_eq!(u64::from_ne_bytes(seen), 3);
            }
            reader.close().unwrap();
        }
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_told() {
        let mut writer = Writer::default();
        writer.number(300u64);
        writer.number(2u64);
        let mut reader = Reader::open(&writer.close().unwrap()).unwrap();
        assert!(matches!(reader.number::<u8>(), Err(CarrierError::Number(300))));
        assert!(matches!(reader.flag(), Err(CarrierError::Number(2))));
        assert!(matches!(reader.number::<u64>(), Err(CarrierError::Short)));
        assert!(matches!(reader.file(), Err(CarrierError::Short)));
        let mut writer = Writer::default();
        writer.number(1u64);
        assert!(matches!(
            Reader::open(&writer.close().unwrap()).unwrap().close(),
            Err(CarrierError::Long)
        ));
        let silent = events(1).remove(0);
        assert!(Reader::open(&silent).is_err(), "no socket");
    }
}
