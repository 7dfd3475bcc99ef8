//! Writes a port's frames to pcapng while traffic runs. A dropped frame carries its reason as a
//! comment.
//!
//! A worker calls [`Capture::offer`], which copies the frame into a bounded queue and never waits:
//! a frame without room is counted as missed. The capture's thread writes. A write error (a full
//! disk) ends the capture, not the traffic, and is reported by [`Capture::status`].
//!
//! tcpdump and Wireshark read the result. Trains appear as they passed through the switch, longer
//! than any MTU.

use crate::{Nanos, Slice, lock};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Options of [`Capture::start`].
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Name of the port, which readers show as the interface.
    pub interface: String,
    /// Most bytes kept of each frame.
    pub snaplen: u32,
    /// Most frames that may wait for the writer.
    pub queue: usize,
    /// Most bytes of the frames that wait.
    pub queue_bytes: usize,
    /// The wall clock at `Nanos(0)` of the switch's clock.
    pub epoch: SystemTime,
}

impl CaptureOptions {
    /// Returns options for whole frames, with at most 4096 of them or 16 MiB waiting.
    pub fn new(interface: &str, epoch: SystemTime) -> CaptureOptions {
        CaptureOptions {
            interface: interface.to_owned(),
            snaplen: 262_144,
            queue: 4096,
            queue_bytes: 16 << 20,
            epoch,
        }
    }
}

/// Direction of a frame, seen from the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the switch.
    Ingress,
    /// Out of it.
    Egress,
}

/// Progress of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureStatus {
    /// Frames written (or waiting in the file buffer).
    pub frames: u64,
    /// Bytes that frames take in the file so far.
    pub bytes: u64,
    /// Frames that were offered and are not in the file, because the queue was full or the capture
    /// had ended.
    pub missed: u64,
    /// Why the capture ended before it was stopped.
    pub error: Option<String>,
}

/// A running capture, shared by workers. When the last reference is dropped, its thread writes what
/// is left and ends; the drop does not wait for it.
pub struct Capture {
    to_writer: SyncSender<Message>,
    progress: Arc<Progress>,
    snaplen: usize,
    queue_bytes: usize,
    /// The writer thread; the first call of `stop` takes it.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A handle that reads a capture's progress, also after the [`Capture`] is dropped.
#[derive(Clone)]
pub struct CaptureProgress(Arc<Progress>);

impl CaptureProgress {
    /// Returns the progress so far.
    pub fn status(&self) -> CaptureStatus {
        CaptureStatus {
            frames: self.0.frames.load(Ordering::Relaxed),
            bytes: self.0.bytes.load(Ordering::Relaxed),
            missed: self.0.missed.load(Ordering::Relaxed),
            error: lock(&self.0.error).clone(),
        }
    }
}

/// Counters of a capture. The writer thread writes all but `missed`, which workers write; `status`
/// reads them.
#[derive(Default)]
struct Progress {
    frames: AtomicU64,
    bytes: AtomicU64,
    missed: AtomicU64,
    /// Bytes in the queue: workers add, the writer subtracts.
    waiting: AtomicUsize,
    error: Mutex<Option<String>>,
}

enum Message {
    Frame(Record),
    Stop,
}

struct Record {
    time: Nanos,
    direction: Direction,
    /// Length of the whole frame.
    length: usize,
    /// Its first bytes, up to the snap length.
    bytes: Vec<u8>,
    drop_reason: Option<&'static str>,
}

impl Capture {
    /// Starts a capture into a file, a pipe, or any other writer.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started. [`Capture::status`] reports later write errors.
    pub fn start(
        output: impl Write + Send + 'static,
        options: CaptureOptions,
    ) -> io::Result<Capture> {
        let (to_writer, from_workers) = sync_channel(options.queue);
        let progress = Arc::new(Progress::default());
        let (snaplen, queue_bytes) = (options.snaplen as usize, options.queue_bytes);
        let seen = progress.clone();
        let writer = std::thread::Builder::new().name("capture".into()).spawn(move || {
            if let Err(error) = write_all(output, &options, &from_workers, &seen) {
                *lock(&seen.error) = Some(words(&error));
            }
        })?;
        Ok(Capture { to_writer, progress, snaplen, queue_bytes, writer: Mutex::new(Some(writer)) })
    }

    /// Offers a frame: private header, lent payload, and the reason if it was dropped. Never waits.
    /// Copies what is kept, so it allocates; called for captured ports only. Returns the bytes
    /// copied.
    pub fn offer(
        &self,
        time: Nanos,
        direction: Direction,
        header: &[u8],
        payload: &[Slice<'_>],
        drop_reason: Option<&'static str>,
    ) -> usize {
        let length = header.len() + payload.iter().map(Slice::len).sum::<usize>();
        let kept = length.min(self.snaplen);
        let waiting = self.progress.waiting.fetch_add(kept, Ordering::Relaxed);
        if waiting.saturating_add(kept) > self.queue_bytes {
            self.miss(kept);
            return 0;
        }
        let mut bytes = Vec::with_capacity(kept);
        for part in std::iter::once(&Slice::from(header)).chain(payload) {
            part.take(self.snaplen - bytes.len()).append_to(&mut bytes);
        }
        let copied = bytes.len();
        let record = Record { time, direction, length, bytes, drop_reason };
        if self.to_writer.try_send(Message::Frame(record)).is_err() {
            self.miss(kept);
        }
        copied
    }

    fn miss(&self, kept: usize) {
        self.progress.waiting.fetch_sub(kept, Ordering::Relaxed);
        self.progress.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a handle that reads the progress after the capture is dropped.
    pub fn progress(&self) -> CaptureProgress {
        CaptureProgress(self.progress.clone())
    }

    /// Returns the progress so far.
    pub fn status(&self) -> CaptureStatus {
        self.progress().status()
    }

    /// Writes the frames offered so far and ends. Waits for the disk, so workers must not call it.
    pub fn stop(&self) -> CaptureStatus {
        if let Some(writer) = lock(&self.writer).take() {
            // An error means that the writer has ended by itself.
            let _ = self.to_writer.send(Message::Stop);
            if writer.join().is_err() {
                *lock(&self.progress.error) = Some("the writer thread panicked".into());
            }
        }
        self.status()
    }
}

/// Returns the error as text, with the system's own words, which the library leaves out.
fn words(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) => format!("cannot write the capture: {error}"),
        other => format!("cannot write the capture: {other}"),
    }
}

/// Body of the writer thread.
fn write_all(
    output: impl Write,
    options: &CaptureOptions,
    from_workers: &Receiver<Message>,
    progress: &Progress,
) -> Result<(), PcapError> {
    let mut file = PcapNgWriter::new(BufWriter::with_capacity(256 << 10, output))?;
    file.write_pcapng_block(InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: options.snaplen,
        options: vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&options.interface)),
            // Nanoseconds: 10^-9 s.
            InterfaceDescriptionOption::IfTsResol(9),
        ],
    })?;
    let epoch = options.epoch.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    while let Some(record) = next(from_workers, &mut file)? {
        progress.waiting.fetch_sub(record.bytes.len(), Ordering::Relaxed);
        let written = file.write_pcapng_block(block(&record, epoch))?;
        progress.frames.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(written as u64, Ordering::Relaxed);
    }
    file.get_mut().flush().map_err(PcapError::IoError)
}

/// Waits for the next frame, and flushes the output while the queue is empty. `None`: stop.
fn next<W: Write>(
    from_workers: &Receiver<Message>,
    file: &mut PcapNgWriter<BufWriter<W>>,
) -> Result<Option<Record>, PcapError> {
    let message = match from_workers.try_recv() {
        Err(TryRecvError::Empty) => {
            file.get_mut().flush().map_err(PcapError::IoError)?;
            from_workers.recv().ok()
        }
        other => other.ok(),
    };
    Ok(match message {
        Some(Message::Frame(record)) => Some(record),
        Some(Message::Stop) | None => None,
    })
}

#[allow(clippy::cast_possible_truncation, reason = "a frame has less than 4 GiB")]
fn block(record: &Record, epoch: Duration) -> EnhancedPacketBlock<'_> {
    // Bits 0 and 1 of epb_flags: 1 inbound, 2 outbound.
    let direction = match record.direction {
        Direction::Ingress => 1,
        Direction::Egress => 2,
    };
    let mut options = vec![EnhancedPacketOption::Flags(direction)];
    if let Some(reason) = record.drop_reason {
        options.push(EnhancedPacketOption::Comment(format!("dropped: {reason}").into()));
    }
    EnhancedPacketBlock {
        interface_id: 0,
        timestamp: epoch + Duration::from_nanos(record.time.0),
        original_len: record.length as u32,
        data: Cow::Borrowed(&record.bytes),
        options,
    }
}
