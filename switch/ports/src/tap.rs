//! TAP ports: the other side is the kernel of this host, or of a container.
//!
//! [`open`] attaches to an existing device or makes one that lasts as long as the port. Frames go
//! with a 12-byte virtio-net header both ways, so trains and unfinished checksums pass without
//! being taken apart.
//!
//! Two surprises. The offloads set on a TAP device belong to the *device* and outlive the
//! descriptor, so every opening sets them, even to none. And some kernels refuse valid trains: a
//! test train to an unused address is written first, and offloads that the kernel refuses are done
//! in software and listed in [`Opened::degraded`].

mod kept;
mod queue;

use crate::ioctl::{self, Plain, Request, TapSetting};
use crate::kept::Flaw;
use crate::link::{Link, LinkError};
use crate::namespace::{self, TAP, Wanted};
use crate::{Device, EgressQueue, IngressQueue, Offloads, probe};
pub use queue::{TapEgress, TapIngress};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use wire::Mac;
use wire::vnet::VnetHeader;

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The device's name, at most 15 bytes; `tap%d` lets the kernel number it.
    pub name: String,
    /// Queue pairs, at least 1.
    pub queues: u16,
    /// Largest IP packet in bytes to set; `None` leaves the MTU as it is.
    pub mtu: Option<u16>,
    /// Frames each queue holds for us before the kernel drops (1000 by default); `None` leaves it.
    pub queue_length: Option<u16>,
    /// The network namespace the device is or shall be in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Whether the kernel takes our frames through a NAPI instance for each queue (`IFF_NAPI`), so
    /// that it may coalesce them.
    pub napi: bool,
    /// Work that the kernel may leave undone in the frames we take.
    pub ingress_offloads: Offloads,
    /// The address of a device that [`open`] makes; `None` leaves the random one of the kernel. A
    /// device that exists keeps its own.
    pub mac: Option<Mac>,
}

impl TapOptions {
    /// Returns options for one queue, all offloads, in this namespace, with the MTU as it is.
    pub fn new(name: &str) -> TapOptions {
        TapOptions {
            name: name.to_owned(),
            queues: 1,
            mtu: None,
            queue_length: None,
            netns: None,
            napi: false,
            ingress_offloads: Offloads::all(),
            mac: None,
        }
    }
}

/// An opened TAP device.
pub struct Opened {
    /// The port.
    pub device: Device,
    /// The link behind it; also tells the name the kernel chose.
    pub link: Link,
    /// What is done in software because this kernel does not do it, as text for people; usually
    /// empty.
    pub degraded: Vec<String>,
    /// Its descriptors in the order of the queues. A device made for this port lasts as long as one
    /// of them is open.
    pub files: Vec<Arc<OwnedFd>>,
}

/// Why a TAP device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The number of queues is outside 1 to 256.
    #[error("{name}: {queues} queues wanted: a TAP device has 1 to {MOST_QUEUES}")]
    Queues {
        /// The device.
        name: String,
        /// The number asked for.
        queues: u16,
    },
    /// `/dev/net/tun` is missing or closed to us.
    #[error("cannot open {TAP}: {0}: load the module `tun` and allow this process to use it")]
    NoTun(#[source] io::Error),
    /// The device cannot be attached to.
    #[error("cannot attach to TAP device {name} with {queues} queue(s): {source}{remedy}")]
    Attach {
        /// The device.
        name: String,
        /// Queues asked for.
        queues: u16,
        /// The kernel's error.
        #[source]
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// A setting was refused.
    #[error("TAP device {name}: cannot {doing}: {source}")]
    Set {
        /// The device.
        name: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kept descriptors do not belong to such a device.
    #[error("TAP device {name}: the descriptors that were kept do not fit: {flaw}")]
    Kept {
        /// The device.
        name: String,
        /// What does not fit.
        flaw: String,
    },
    /// An operation on the link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// `MAX_TAP_QUEUES` of the kernel.
const MOST_QUEUES: u16 = 256;
/// Send buffer in bytes. Large enough that a slow reader shows as full queues there, not as refused
/// writes here.
const SEND_BUFFER: i32 = 16 << 20;

/// Opens a TAP device as a port, brings it up and sets its MTU.
///
/// # Errors
///
/// Fails if `/dev/net/tun` cannot be opened, the device cannot be attached to with so many queues,
/// or a setting is refused.
pub fn open(options: &TapOptions) -> Result<Opened, TapError> {
    if !(1..=MOST_QUEUES).contains(&options.queues) {
        return Err(TapError::Queues { name: options.name.clone(), queues: options.queues });
    }
    let Attached { name, files, is_new } = attach(options)?;
    set_up(options, name, files, options.mac.filter(|_| is_new))
}

/// Reopens a device from the descriptors of an earlier process, one for each queue in their order.
/// Frames that wait in its queues are not lost, and its carrier stays.
///
/// # Errors
///
/// Fails with [`TapError::Kept`] if the descriptors are not of the device that `options` describe.
/// After any other error they can be tried again.
pub fn open_kept(options: &TapOptions, files: &[Arc<OwnedFd>]) -> Result<Opened, TapError> {
    let link = Link::open(&options.name, options.netns.as_deref())?;
    kept::check(options, files, link.socket()).map_err(|flaw| kept_error(&options.name, flaw))?;
    set_up(options, options.name.clone(), files.to_vec(), None)
}

fn kept_error(name: &str, flaw: Flaw) -> TapError {
    let doing = "resume with its kept descriptors";
    flaw.told(
        |flaw| TapError::Kept { name: name.to_owned(), flaw },
        |source| TapError::Set { name: name.to_owned(), doing, source },
    )
}

/// Applies all settings anew: they belong to the device or to its queues, and an earlier process
/// may have set others. The address is set if there is one.
fn set_up(
    options: &TapOptions,
    name: String,
    files: Vec<Arc<OwnedFd>>,
    mac: Option<Mac>,
) -> Result<Opened, TapError> {
    let mut degraded = Vec::new();
    let Some(first) = files.first() else {
        return Err(TapError::Queues { name, queues: 0 });
    };
    set_up_header(&name, first)?;
    set_ingress_offloads(&name, first, options.ingress_offloads, &mut degraded)?;
    let link = Link::open(&name, options.netns.as_deref())?;
    if let Some(mac) = mac {
        link.set_mac(mac)?;
    }
    if let Some(mtu) = options.mtu {
        link.set_mtu(mtu.into())?;
    }
    if let Some(frames) = options.queue_length {
        link.set_queue_length(frames)?;
    }
    // A device made for an unprivileged user can be up already, and such a user cannot bring it up.
    if !link.is_up()? {
        link.set_up(true)?;
    }
    let taken = probe::egress(first, VnetHeader::LEN);
    degraded.extend(probe::refused(&name, taken.offloads));
    let mtu = u16::try_from(link.mtu()?).unwrap_or(u16::MAX);
    let mac = Some(link.mac()?);
    let device = Device {
        ingress: files
            .iter()
            .map(|file| IngressQueue::Tap(TapIngress::new(file.clone())))
            .collect(),
        egress: files.iter().map(|file| EgressQueue::Tap(TapEgress::new(file.clone()))).collect(),
        live: Arc::new(taken.capabilities(options.queues)),
        mtu,
        mac,
        hook: None,
    };
    Ok(Opened { device, link, degraded, files })
}

/// A device with a descriptor for each queue.
struct Attached {
    /// The device's name as the kernel has it.
    name: String,
    files: Vec<Arc<OwnedFd>>,
    /// Whether it was made for them.
    is_new: bool,
}

fn attach(options: &TapOptions) -> Result<Attached, TapError> {
    let open = || {
        let made = namespace::make(options.netns.as_deref(), Wanted::Tap);
        made.map_err(|refusal| refusal.told(TapError::NoTun))
    };
    let refused = |source| attach_error(&options.name, options.queues, source);
    let first = open()?;
    let (name, is_new) = make_or_attach(&first, options).map_err(refused)?;
    let mut files = vec![Arc::new(first)];
    for _ in 1..options.queues {
        let file = open()?;
        attach_queue(&file, &name, options).map_err(refused)?;
        files.push(Arc::new(file));
    }
    Ok(Attached { name, files, is_new })
}

/// Attaches the first queue. Returns the device's name, and whether it was made. The kernel tells,
/// so that a device that another process makes meanwhile does not count as made here.
fn make_or_attach(file: &OwnedFd, options: &TapOptions) -> io::Result<(String, bool)> {
    match attach_as(file, &options.name, kind(options) | flags(libc::IFF_TUN_EXCL)) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Ok((attach_queue(file, &options.name, options)?, false))
        }
        made => Ok((made?, true)),
    }
}

/// Attaches one queue. A device made with several queues must be attached to as such, even for one.
fn attach_queue(file: &OwnedFd, name: &str, options: &TapOptions) -> io::Result<String> {
    match attach_as(file, name, kind(options)) {
        Err(error) if options.queues == 1 && error.raw_os_error() == Some(libc::EINVAL) => {
            attach_as(file, name, kind(options) | flags(libc::IFF_MULTI_QUEUE))
        }
        other => other,
    }
}

fn attach_as(file: &OwnedFd, name: &str, kind: i16) -> io::Result<String> {
    let answer = Request::new(name)?.short(kind).call(file, Plain::Attach)?;
    Ok(answer.name())
}

/// Returns the kind of device as `IFF_*`.
fn kind(options: &TapOptions) -> i16 {
    let queues = if options.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    let napi = if options.napi { libc::IFF_NAPI } else { 0 };
    flags(libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues | napi)
}

#[allow(clippy::cast_possible_truncation, reason = "interface flags are 16 bits, declared as int")]
const fn flags(bits: i32) -> i16 {
    bits as i16
}

fn attach_error(name: &str, queues: u16, source: io::Error) -> TapError {
    let remedy = match source.raw_os_error() {
        Some(libc::EPERM) => ": it needs CAP_NET_ADMIN, or a device made for this user",
        Some(libc::EBUSY) => ": another process has it open: stop that, or choose another name",
        Some(libc::EINVAL) => {
            ": a device of that name is of another kind: delete it, or make it again as \
             `ip tuntap add NAME mode tap multi_queue`"
        }
        _ => "",
    };
    TapError::Attach { name: name.to_owned(), queues, source, remedy }
}

/// Sets the header layout and the send buffer. They are settings of the device, so one queue sets
/// them for all.
fn set_up_header(name: &str, file: &OwnedFd) -> Result<(), TapError> {
    let header = i32::try_from(VnetHeader::LEN).unwrap_or_default();
    for (doing, setting, value) in [
        ("set the size of its virtio-net header", TapSetting::HeaderSize, header),
        ("make its virtio-net header little-endian", TapSetting::LittleEndian, 1),
        ("set its send buffer", TapSetting::SendBuffer, SEND_BUFFER),
    ] {
        ioctl::tap_set(file, setting, value).map_err(|source| TapError::Set {
            name: name.to_owned(),
            doing,
            source,
        })?;
    }
    Ok(())
}

/// Sets the work that may stay undone in the frames we take, step by step down to what this kernel
/// supports.
fn set_ingress_offloads(
    name: &str,
    file: impl AsFd,
    wanted: Offloads,
    degraded: &mut Vec<String>,
) -> Result<(), TapError> {
    let steps = [
        wanted,
        wanted - Offloads::USO,
        wanted - Offloads::USO - Offloads::ECN,
        wanted & Offloads::CSUM,
        Offloads::empty(),
    ];
    let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
    for step in steps {
        match ioctl::tap_set_offload(&file, kernel_features(step)) {
            Ok(()) if step == wanted => return Ok(()),
            Ok(()) => {
                degraded.push(format!(
                    "{name}: this kernel keeps {:?} to itself: such traffic arrives frame by frame",
                    wanted - step
                ));
                return Ok(());
            }
            Err(error) => refusal = error,
        }
    }
    let doing = "set its offloads, not even to none";
    Err(TapError::Set { name: name.to_owned(), doing, source: refusal })
}

/// Translates offloads to the flags of `TUNSETOFFLOAD`. Every other feature needs the checksum, and
/// ECN needs TSO.
fn kernel_features(offloads: Offloads) -> u32 {
    let tso = offloads.intersects(Offloads::TSO4 | Offloads::TSO6);
    let table = [
        (Offloads::CSUM, libc::TUN_F_CSUM),
        (Offloads::TSO4, libc::TUN_F_TSO4),
        (Offloads::TSO6, libc::TUN_F_TSO6),
        (Offloads::USO, libc::TUN_F_USO4 | libc::TUN_F_USO6),
        (Offloads::ECN, if tso { libc::TUN_F_TSO_ECN } else { 0 }),
    ];
    if !offloads.contains(Offloads::CSUM) {
        return 0;
    }
    table.iter().filter(|(flag, _)| offloads.contains(*flag)).fold(0, |all, (_, bit)| all | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn features_are_such_as_the_kernel_can_take(bits in 0u8..32) {
            let features = kernel_features(Offloads::from_bits_truncate(bits));
            let tso = libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
            prop_assert!(features == 0 || features & libc::TUN_F_CSUM != 0);
            prop_assert!(features & libc::TUN_F_TSO_ECN == 0 || features & tso != 0);
        }
    }

    #[test]
    fn no_queues_and_too_many_are_refused_before_anything_is_opened() {
        for queues in [0, 257] {
            let options = TapOptions { queues, ..TapOptions::new("millrace-none") };
            assert!(matches!(open(&options), Err(TapError::Queues { .. })));
        }
    }
}
