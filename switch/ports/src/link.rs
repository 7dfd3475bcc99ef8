//! A network link of the host: its properties, which the control plane reads once a second, and its
//! settings, which are applied when a port is opened.
//!
//! A [`Link`] keeps a socket of the link's network namespace, so any thread in any namespace can
//! use it. The name identifies a link: a device that is deleted and recreated is the same link with
//! another index.
//!
//! The socket keeps its namespace alive when the path of that is gone, and the index shows whether
//! the name still stands for the device that was opened. [`Link::fault`] compares both.

mod carrier;

use crate::ioctl::{self, Ethtool, Plain, Request};
use crate::namespace::{self, Refusal, Wanted};
pub(crate) use carrier::Carrier;
use rustix::fs::fstat;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::Mac;

/// A network link of the host, identified by its name.
pub struct Link {
    name: String,
    /// Its namespace, if that is another one than the process's, which `/sys` shows.
    namespace: Option<Namespace>,
    /// A socket of the namespace, for ioctls; nothing is ever sent on it.
    socket: OwnedFd,
}

/// A network namespace as it was when it was entered.
struct Namespace {
    path: PathBuf,
    /// Its device and inode; `None` if the kernel does not tell.
    identity: Option<(u64, u64)>,
}

impl Namespace {
    /// Describes the namespace of the socket, which was opened in the one at this path.
    fn of(path: &Path, socket: &OwnedFd) -> Namespace {
        let held = ioctl::socket_namespace(socket).and_then(|held| Ok(fstat(held)?));
        let held = held.map(|held| (held.st_dev, held.st_ino));
        // Without the right to ask, what the path stands for now.
        let identity = held.or_else(|_| Namespace::at(path)).ok();
        Namespace { path: path.to_owned(), identity }
    }

    fn at(path: &Path) -> io::Result<(u64, u64)> {
        std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
    }

    /// Returns why its path no longer stands for it.
    fn fault(&self) -> Option<String> {
        let (path, identity) = (self.path.display(), self.identity?);
        let gone = format!("its network namespace {path} was deleted");
        match Namespace::at(&self.path) {
            Ok(found) => (found != identity).then(|| format!("{gone}; another one is there now")),
            // After any other error nothing is known.
            Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(gone),
        }
    }
}

/// Why a property could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no device of that name.
    #[error(
        "there is no network device {name}: create it, or correct the name (`ip link` lists what there is)"
    )]
    NoSuchLink {
        /// The device asked for.
        name: String,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}{}", path.display(), remedy(source))]
    Namespace {
        /// The path given.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The device does not support the MTU.
    #[error(
        "{name} has MTU {seen} and does not take {wanted}: choose one between the minmtu and maxmtu that \
         `ip -d link show {name}` prints"
    )]
    Mtu {
        /// The device.
        name: String,
        /// Its MTU, in bytes.
        seen: u32,
        /// The MTU asked for.
        wanted: u32,
    },
    /// The process lacks the privilege to change the device.
    #[error(
        "{name}: cannot {doing}: it needs CAP_NET_ADMIN in the network namespace of the device"
    )]
    NotPermitted {
        /// The device.
        name: String,
        /// The step that failed.
        doing: &'static str,
    },
    /// Anything else.
    #[error("{name}: cannot {doing}: {source}")]
    Io {
        /// The device.
        name: String,
        /// The step that failed.
        doing: &'static str,
        /// The error of the step.
        #[source]
        source: io::Error,
    },
}

/// A segmentation or checksum feature of a link, as `ethtool -K` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOffload {
    /// Receive checksumming.
    RxCsum,
    /// Transmit checksumming.
    TxCsum,
    /// TCP segmentation by the device.
    Tso,
    /// Segmentation by the kernel just above the device.
    Gso,
    /// Receive coalescing by the kernel.
    Gro,
}

impl Refusal {
    /// Returns the error of a port, which says what could not be made.
    pub(crate) fn told<E: From<LinkError>>(self, making: impl FnOnce(io::Error) -> E) -> E {
        match self {
            Refusal::Namespace { path, source } => LinkError::Namespace { path, source }.into(),
            Refusal::Making(source) => making(source),
        }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Namespace { path, source } => {
                io::Error::new(source.kind(), LinkError::Namespace { path, source })
            }
            Refusal::Making(source) => source,
        }
    }
}

impl Link {
    /// Opens a link by name, in a namespace or in that of the calling thread. The device need not
    /// exist yet.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn open(name: &str, netns: Option<&Path>) -> Result<Link, LinkError> {
        let failed = |source| {
            let doing = "open a socket to ask about it";
            LinkError::Io { name: name.to_owned(), doing, source }
        };
        let socket =
            namespace::make(netns, Wanted::Links).map_err(|refusal| refusal.told(failed))?;
        let namespace = netns.map(|path| Namespace::of(path, &socket));
        Ok(Link { name: name.to_owned(), namespace, socket })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a socket of its network namespace.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the links that it is built on, such as those of a VLAN or a bond; none if it is in
    /// another network namespace.
    pub fn lower(&self) -> Vec<Link> {
        let is_here = self.namespace.is_none();
        let entries = is_here.then(|| std::fs::read_dir(format!("/sys/class/net/{}", self.name)));
        let names =
            entries.into_iter().flatten().flatten().flatten().map(|entry| entry.file_name());
        let lower = names.filter_map(|name| {
            let name = name.to_str()?.strip_prefix("lower_")?.to_owned();
            Link::open(&name, None).ok()
        });
        lower.collect()
    }

    /// Returns why its namespace, or the device that was opened with this index, is no longer what
    /// the configuration names; `None` also if there is no device of its name.
    pub fn fault(&self, index: u32) -> Option<String> {
        let fault = self.namespace.as_ref().and_then(Namespace::fault);
        fault.or_else(|| {
            let is_other = self.index().is_ok_and(|now| now != index);
            is_other.then(|| {
                format!("its device was deleted or renamed, and {} is another one now", self.name)
            })
        })
    }

    /// Returns why the path of its namespace no longer stands for that.
    pub fn namespace_fault(&self) -> Option<String> {
        self.namespace.as_ref()?.fault()
    }

    /// Returns the kernel's number of the device.
    ///
    /// # Errors
    /// Fails if there is none of that name.
    pub fn index(&self) -> Result<u32, LinkError> {
        let answer = self.ask(Plain::GetIndex, "read its index")?;
        Ok(answer.as_int().unsigned_abs())
    }

    /// Whether a device has this number. Asked by number because a question by an unknown name
    /// makes the kernel look for a module, and the caller wait, each time.
    pub(crate) fn has_device(&self, index: u32) -> bool {
        let request = self.request().map(|request| request.int(index.cast_signed()));
        request.is_ok_and(|request| request.call(&self.socket, Plain::GetName).is_ok())
    }

    /// Returns the largest IP packet it carries, in bytes.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn mtu(&self) -> Result<u32, LinkError> {
        Ok(self.ask(Plain::GetMtu, "read its MTU")?.as_int().unsigned_abs())
    }

    /// Sets the largest IP packet, in bytes.
    ///
    /// # Errors
    /// Fails if the device does not support it or the process may not change it.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LinkError> {
        let value = i32::try_from(mtu).unwrap_or(i32::MAX);
        match self.request()?.int(value).call(&self.socket, Plain::SetMtu) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(LinkError::Mtu { name: self.name.clone(), seen: self.mtu()?, wanted: mtu })
            }
            other => other.map(drop).map_err(|error| self.error("set its MTU", error)),
        }
    }

    /// Returns its Ethernet address.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn mac(&self) -> Result<Mac, LinkError> {
        Ok(Mac(self.ask(Plain::GetAddress, "read its address")?.as_address()))
    }

    /// Sets its Ethernet address.
    ///
    /// # Errors
    /// Fails if the device does not support it or the process may not change it.
    pub fn set_mac(&self, mac: Mac) -> Result<(), LinkError> {
        self.request()?
            .address(mac.0)
            .call(&self.socket, Plain::SetAddress)
            .map(drop)
            .map_err(|error| self.error("set its address", error))
    }

    /// Whether it is administratively up.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn is_up(&self) -> Result<bool, LinkError> {
        Ok(self.flags()? & libc::IFF_UP != 0)
    }

    /// Whether it is up and has a carrier.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn has_carrier(&self) -> Result<bool, LinkError> {
        Ok(self.flags()? & libc::IFF_RUNNING != 0)
    }

    /// Whether it has a carrier according to the device itself: `has_carrier` may follow up to a
    /// second later if it changes often.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn detects_carrier(&self) -> Result<bool, LinkError> {
        ioctl::ethtool(&self.socket, &self.name, Ethtool::GetLink, 0)
            .map(|value| value != 0)
            .map_err(|error| self.error("read its carrier", error))
    }

    /// Returns its speed in megabits a second; `None` if the device does not know it.
    ///
    /// # Errors
    /// Fails if the device cannot be asked.
    pub fn speed(&self) -> Result<Option<u32>, LinkError> {
        let speed = ioctl::ethtool_speed(&self.socket, &self.name);
        let speed = speed.map_err(|error| self.error("read its speed", error))?;
        Ok((speed != 0 && speed != u32::MAX).then_some(speed))
    }

    /// Brings it up or down.
    ///
    /// # Errors
    /// Fails if there is no such device or the process may not change it.
    pub fn set_up(&self, up: bool) -> Result<(), LinkError> {
        let answer = self.ask(Plain::GetFlags, "read its flags")?;
        let bit = UP;
        let flags = if up { answer.as_short() | bit } else { answer.as_short() & !bit };
        self.request()?
            .short(flags)
            .call(&self.socket, Plain::SetFlags)
            .map(drop)
            .map_err(|error| self.error(if up { "bring it up" } else { "bring it down" }, error))
    }

    /// Sets how many frames the kernel queues toward the device before it drops.
    ///
    /// # Errors
    /// Fails if the process may not change it.
    pub fn set_queue_length(&self, frames: u16) -> Result<(), LinkError> {
        self.request()?
            .int(i32::from(frames))
            .call(&self.socket, Plain::SetQueueLength)
            .map(drop)
            .map_err(|error| self.error("set its queue length", error))
    }

    /// Returns the number of its receive queues; `None` if its driver does not tell.
    pub fn receive_queues(&self) -> Option<u32> {
        let queues = ioctl::queues(&self.socket, &self.name).ok();
        queues.map(|(receive, _)| receive).filter(|count| *count > 0)
    }

    /// Returns the number of its transmit queues; `None` if its driver does not tell.
    pub fn transmit_queues(&self) -> Option<u32> {
        let queues = ioctl::queues(&self.socket, &self.name).ok();
        queues.map(|(_, transmit)| transmit).filter(|count| *count > 0)
    }

    /// Whether it is a veth: one end of a pair.
    pub(crate) fn is_veth(&self) -> bool {
        ioctl::driver(&self.socket, &self.name).is_ok_and(|driver| driver == "veth")
    }

    /// Whether it merges received segments itself (LRO). What some drivers make of them the kernel
    /// cannot hand over on a packet socket.
    pub fn merges_by_lro(&self) -> bool {
        /// `ETH_FLAG_LRO`
        const LRO: u32 = 1 << 15;
        ioctl::ethtool(&self.socket, &self.name, Ethtool::GetFlags, 0)
            .is_ok_and(|flags| flags & LRO != 0)
    }

    /// Returns the first IPv4 address that the host has on it.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Some(self.ask(Plain::GetIpv4, "read its IPv4 address").ok()?.as_ipv4())
    }

    /// Whether it takes the tag out of a received frame.
    pub fn strips_tags(&self) -> bool {
        /// `ETH_FLAG_RXVLAN`
        const RECEIVE_VLAN: u32 = 1 << 8;
        ioctl::ethtool(&self.socket, &self.name, Ethtool::GetFlags, 0)
            .is_ok_and(|flags| flags & RECEIVE_VLAN != 0)
    }

    /// Whether an offload is on.
    ///
    /// # Errors
    /// Fails if the device cannot be asked.
    pub fn offload(&self, offload: LinkOffload) -> Result<bool, LinkError> {
        let (get, _) = offload.commands();
        ioctl::ethtool(&self.socket, &self.name, get, 0)
            .map(|value| value != 0)
            .map_err(|error| self.error("read its offloads", error))
    }

    /// Turns an offload on or off. The lab uses it to make a sender put single frames on the wire.
    ///
    /// # Errors
    /// Fails if the device or the kernel refuses it.
    pub fn set_offload(&self, offload: LinkOffload, on: bool) -> Result<(), LinkError> {
        let (_, set) = offload.commands();
        ioctl::ethtool(&self.socket, &self.name, set, u32::from(on))
            .map(drop)
            .map_err(|error| self.error("set its offloads", error))
    }

    fn flags(&self) -> Result<i32, LinkError> {
        Ok(i32::from(self.ask(Plain::GetFlags, "read its flags")?.as_short()))
    }

    fn request(&self) -> Result<Request, LinkError> {
        Request::new(&self.name).map_err(|error| self.error("use this name", error))
    }

    fn ask(&self, plain: Plain, doing: &'static str) -> Result<Request, LinkError> {
        self.request()?.call(&self.socket, plain).map_err(|error| self.error(doing, error))
    }

    fn error(&self, doing: &'static str, source: io::Error) -> LinkError {
        let name = self.name.clone();
        match source.raw_os_error() {
            Some(libc::ENODEV) => LinkError::NoSuchLink { name },
            Some(libc::EPERM) => LinkError::NotPermitted { name, doing },
            _ => LinkError::Io { name, doing, source },
        }
    }
}

/// Returns what helps if a namespace could not be entered, after the error.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => ": make it, or correct `netns`; the port opens when it is there",
        _ => "",
    }
}

/// `IFF_UP` as the `short` of `struct ifreq`.
const UP: i16 = 1;
const _: () = assert!(libc::IFF_UP == 1);

impl LinkOffload {
    /// Returns ethtool's short name of the feature.
    pub fn name(self) -> &'static str {
        match self {
            LinkOffload::RxCsum => "rx",
            LinkOffload::TxCsum => "tx",
            LinkOffload::Tso => "tso",
            LinkOffload::Gso => "gso",
            LinkOffload::Gro => "gro",
        }
    }

    fn commands(self) -> (Ethtool, Ethtool) {
        match self {
            LinkOffload::RxCsum => (Ethtool::GetRxCsum, Ethtool::SetRxCsum),
            LinkOffload::TxCsum => (Ethtool::GetTxCsum, Ethtool::SetTxCsum),
            LinkOffload::Tso => (Ethtool::GetTso, Ethtool::SetTso),
            LinkOffload::Gso => (Ethtool::GetGso, Ethtool::SetGso),
            LinkOffload::Gro => (Ethtool::GetGro, Ethtool::SetGro),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_link_that_is_not_there_says_so() {
        let link = Link::open("nosuchlink0", None).unwrap();
        assert!(matches!(link.mtu(), Err(LinkError::NoSuchLink { name }) if name == "nosuchlink0"));
    }

    /// The socket kept the namespace alive, and its path could stand for another one.
    #[test]
    fn a_namespace_whose_path_is_gone_or_another_ones_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blue");
        let own = "/proc/thread-self/ns/net";
        let tried = namespace::fresh(|| {
            let first = std::fs::File::open(own).unwrap();
            let to = |file: &std::fs::File| format!("/proc/self/fd/{}", file.as_raw_fd());
            std::os::unix::fs::symlink(to(&first), &path).unwrap();
            let link = Link::open("lo", Some(&path)).unwrap();
            let index = link.index().unwrap();
            assert_eq!(link.fault(index), None);
            std::fs::remove_file(&path).unwrap();
            let gone = format!("its network namespace {} was deleted", path.display());
            assert_eq!(link.fault(index), Some(gone));
            namespace::fresh(|| {
                let other = std::fs::File::open(own).unwrap();
                std::os::unix::fs::symlink(to(&other), &path).unwrap();
                let text = link.namespace_fault().unwrap();
                assert!(text.contains("another one is there now"), "{text}");
            })
            .unwrap();
        });
        if let Err(error) = tried {
            eprintln!("skipped: needs the right to make a network namespace: {error}");
        }
    }

    #[test]
    fn a_device_of_another_number_is_not_the_one_that_was_opened() {
        let link = Link::open("lo", None).unwrap();
        let index = link.index().unwrap();
        assert_eq!(link.fault(index), None);
        assert!(link.fault(index + 1).unwrap().contains("lo is another one now"));
    }

    #[test]
    fn a_name_too_long_is_refused_before_the_kernel_sees_it() {
        let link = Link::open("a_name_far_too_long_for_linux", None).unwrap();
        assert!(matches!(link.index(), Err(LinkError::Io { doing: "use this name", .. })));
    }
}
