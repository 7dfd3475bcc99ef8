//! Veth pairs: one end is a container's interface, the other one the switch's, which takes it as a
//! packet port ([`packet`](crate::packet)).
//!
//! [`open`] makes a pair, or finds the one that an earlier process made. The host's end is in the
//! namespace of the calling thread, under a name and with an address that only the caller uses
//! ([`HostEnd`]): a veth that has both is the caller's, and any other device of that name is refused.
//! The container's end has the name, the address and the namespace that the configuration says.
//!
//! A pair outlives the process, so that a container keeps its addresses; [`remove`] ends it. It also
//! ends with the container's namespace.
//!
//! The host's stack takes no part: the kernel gives the host's end no address, and a filter drops
//! what arrives there once packet sockets have it. Otherwise the host would answer ARP for its own
//! addresses, and a container would reach it past the switch. A container that may configure its
//! end can mark frames so that they pass both sockets and filter (an `ifb` device does): the stack
//! does without IPv6 there, believes no IPv4 source but 0.0.0.0, and answers no ARP.

mod kernel;

use crate::ioctl;
use crate::link::{Link, LinkError};
use kernel::{Kernel, NewPair, Seen};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use wire::Mac;

/// By what the caller knows the host's end of a pair. Not secret; it must be improbable that another
/// device has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEnd {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its address, which no frame of the port has.
    pub mac: Mac,
}

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct VethOptions {
    /// The host's end.
    pub host: HostEnd,
    /// The name of the container's end, at most 15 bytes.
    pub name: String,
    /// Its network namespace; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Largest IP packet of both ends in bytes; `None` leaves the kernel's default.
    pub mtu: Option<u16>,
    /// The address of the container's end of a pair that [`open`] makes; `None` leaves the random one
    /// of the kernel. A pair that exists keeps its own.
    pub mac: Option<Mac>,
    /// What the pair is for; `ip link` shows it at the host's end, and [`described`] finds it.
    pub alias: String,
}

/// An opened pair.
pub struct Pair {
    /// The host's end, for a packet port.
    pub host: Link,
    /// The container's end.
    pub inside: Link,
    /// What could not be set to keep the host's own stack from the pair, each as a sentence with its
    /// remedy; usually empty.
    pub exposed: Vec<String>,
}

/// Why a pair could not be opened or removed.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// The name of the host's end is taken.
    #[error(
        "network device {host} exists, and was not made for this port, whose host end needs the name: `ip link delete \
         {host}`, or rename the port"
    )]
    Foreign {
        /// The device.
        host: String,
    },
    /// The name of the container's end is taken.
    #[error(
        "a network device {name} exists{place}, and is not this port's: delete it, or give the port another name in `veth`"
    )]
    Taken {
        /// The device.
        name: String,
        /// Its namespace, in words; empty for the process's own.
        place: String,
    },
    /// The kernel refuses a step.
    #[error("veth pair {host} of {name}: cannot {doing}: {source}{remedy}")]
    Kernel {
        /// The host's end.
        host: String,
        /// The container's end.
        name: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// An operation on one of the ends failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Least MTU with which a device has IPv6 (RFC 8200).
const LEAST_OF_IPV6: u32 = 1280;

/// Makes the pair, or finds the caller's own, and brings both ends up. A pair of the caller's whose
/// other end is elsewhere, or has another name, is made anew.
///
/// # Errors
///
/// Fails if the namespace cannot be entered, one of the names is taken by another device, or the
/// kernel refuses a step.
pub fn open(options: &VethOptions) -> Result<Pair, VethError> {
    let inside = Link::open(&options.name, options.netns.as_deref())?;
    let host = Link::open(&options.host.name, None)?;
    let failed = |doing| failed(&options.host, &options.name, doing);
    let kernel = Kernel::open().map_err(failed("open a socket to make it"))?;
    let index = find_or_make(&kernel, options, &host, &inside)?;
    kernel.assign_no_address(index).map_err(failed("keep its host end without address"))?;
    kernel.describe(index, &options.alias).map_err(failed("describe its host end"))?;
    let mut exposed = Vec::new();
    if let Err(error) = kernel.drop_for_stack(index) {
        exposed.push(format!(
            "{}: the host's own stack receives the container's frames too, as the kernel refuses a filter ({error}): load \
             the modules sch_ingress and cls_bpf",
            options.host.name
        ));
    }
    if let Err(error) = kernel.believe_no_source(index) {
        exposed.push(by_ifb(&options.host.name, "IPv4", &error.into()));
    }
    if let Err(error) = without_ipv6(&options.host.name) {
        exposed.push(by_ifb(&options.host.name, "IPv6", &error));
    }
    let pair = Pair { host, inside, exposed };
    if let Some(mtu) = options.mtu {
        set_mtu(&pair.host, &pair.inside, mtu.into())?;
    }
    for end in [&pair.host, &pair.inside] {
        if !end.is_up()? {
            end.set_up(true)?;
        }
    }
    Ok(pair)
}

/// Removes the caller's pair with this host end. It is no error if there is none.
///
/// # Errors
/// The kernel cannot be asked, or does not delete it.
pub fn remove(host: &HostEnd) -> Result<(), VethError> {
    let failed = |doing| failed(host, "a container", doing);
    let kernel = Kernel::open().map_err(failed("open a socket to delete it"))?;
    let found = kernel.find(&host.name).map_err(failed("look for it"))?;
    match found.filter(|seen| is_of(seen, host)) {
        Some(seen) => kernel.delete(seen.index).map_err(failed("delete it")),
        None => Ok(()),
    }
}

/// Returns the host ends of veth pairs in this namespace with an alias that begins so, each with what
/// follows. Anyone may set an alias: the caller checks whose end it is.
///
/// # Errors
/// The kernel cannot be asked.
pub fn described(beginning: &str) -> io::Result<Vec<(HostEnd, String)>> {
    let links = Kernel::open()?.links()?;
    let described = links.into_iter().filter(|seen| seen.is_veth).filter_map(|seen| {
        let rest = seen.alias.strip_prefix(beginning)?.to_owned();
        Some((seen.end, rest))
    });
    Ok(described.collect())
}

/// Returns whether the other end of this pair, of which one end is in the calling thread's namespace,
/// is in another namespace. Fails if the kernel cannot be asked, or there is no such device.
pub(crate) fn is_other_end_elsewhere(name: &str) -> rustix::io::Result<bool> {
    let seen = Kernel::open()?.find(name)?.ok_or(Errno::NODEV)?;
    Ok(seen.peer_namespace.is_some())
}

/// Sets the MTU of both ends, in bytes. The kernel gives a device IPv6 anew when its MTU becomes large
/// enough; the host's end must have no address then either, so it goes down meanwhile.
///
/// # Errors
/// The kernel refuses the MTU.
pub fn set_mtu(host: &Link, inside: &Link, mtu: u32) -> Result<(), LinkError> {
    inside.set_mtu(mtu)?;
    let gets_ipv6 = mtu >= LEAST_OF_IPV6 && host.mtu()? < LEAST_OF_IPV6;
    if !gets_ipv6 {
        return host.set_mtu(mtu);
    }
    let is_up = host.is_up()?;
    host.set_up(false)?;
    host.set_mtu(mtu)?;
    let index = host.index()?;
    let silent = Kernel::open().and_then(|kernel| kernel.assign_no_address(index));
    silent.map_err(|error| LinkError::Io {
        name: host.name().to_owned(),
        doing: "keep it without address",
        source: error.into(),
    })?;
    // A kernel that refuses this has refused it when the pair was opened, and the port says so.
    let _ = without_ipv6(host.name());
    host.set_up(is_up)
}

/// Has the stack drop IPv6 packets that arrive at a link of this namespace.
fn without_ipv6(name: &str) -> io::Result<()> {
    let setting = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    // Not created or cut off, which would be further rights.
    let written = fs::OpenOptions::new().write(true).open(&setting);
    match written.and_then(|mut file| file.write_all(b"1")) {
        // The kernel has no IPv6, or the link's MTU is too small for it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) if fs::read_to_string(&setting).is_ok_and(|found| found.trim() == "1") => Ok(()),
        done => done,
    }
}

/// Returns what it means that a link's stack could not be kept out.
fn by_ifb(name: &str, protocol: &str, error: &io::Error) -> String {
    format!(
        "{name}: a container with CAP_NET_ADMIN can send to the host's own {protocol} stack, past the switch, as a setting is \
         refused ({error}): `sysctl -w net.ipv6.conf.{name}.disable_ipv6=1 net.ipv4.conf.{name}.rp_filter=1 \
         net.ipv4.conf.{name}.arp_ignore=8`"
    )
}

/// Returns the kernel's number of the host's end.
fn find_or_make(
    kernel: &Kernel,
    options: &VethOptions,
    host: &Link,
    inside: &Link,
) -> Result<u32, VethError> {
    let failed = |doing| failed(&options.host, &options.name, doing);
    let namespace = Other::of(host, inside).map_err(|error| {
        failed("learn its namespace")(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    if let Some(seen) = kernel.find(&options.host.name).map_err(failed("look for it"))? {
        if !is_of(&seen, &options.host) {
            return Err(VethError::Foreign { host: options.host.name.clone() });
        }
        let is_there = namespace.has_other_end(kernel, &seen, inside);
        if is_there.map_err(failed("look for its other end"))? {
            return Ok(seen.index);
        }
        kernel.delete(seen.index).map_err(failed("delete the one whose other end is elsewhere"))?;
    }
    let made = kernel.make(&NewPair {
        host: &options.host,
        name: &options.name,
        mac: options.mac,
        namespace: namespace.0.as_ref().map(AsFd::as_fd),
        mtu: options.mtu,
    });
    match made {
        Err(Errno::EXIST) => {
            let place = options.netns.as_ref().map(|path| format!(" in {}", path.display()));
            Err(VethError::Taken { name: options.name.clone(), place: place.unwrap_or_default() })
        }
        made => made.map_err(failed("make it")),
    }?;
    Ok(host.index()?)
}

fn is_of(seen: &Seen, host: &HostEnd) -> bool {
    seen.is_veth && seen.end == *host
}

/// The namespace of the container's end; `None` if it is that of the host's end.
struct Other(Option<OwnedFd>);

impl Other {
    fn of(host: &Link, inside: &Link) -> io::Result<Other> {
        let [its, ours] = [inside, host].map(|link| ioctl::socket_namespace(link.socket()));
        let (its, ours) = (its?, ours?);
        let identity = |file: &OwnedFd| fstat(file).map(|found| (found.st_dev, found.st_ino));
        let is_same = identity(&its)? == identity(&ours)?;
        Ok(Other((!is_same).then_some(its)))
    }

    /// Whether the other end of a pair is the wanted one, here.
    fn has_other_end(
        &self,
        kernel: &Kernel,
        seen: &Seen,
        inside: &Link,
    ) -> rustix::io::Result<bool> {
        let is_here = match &self.0 {
            None => seen.peer_namespace.is_none(),
            Some(namespace) => {
                let number = kernel.number_of(namespace.as_fd())?;
                number.is_some() && number == seen.peer_namespace
            }
        };
        Ok(is_here && inside.index().is_ok_and(|index| seen.peer == Some(index)))
    }
}

fn failed(host: &HostEnd, name: &str, doing: &'static str) -> impl Fn(Errno) -> VethError {
    let (host, name) = (host.name.clone(), name.to_owned());
    move |error| VethError::Kernel {
        host: host.clone(),
        name: name.clone(),
        doing,
        source: error.into(),
        remedy: match error {
            Errno::PERM => {
                ": it needs CAP_NET_ADMIN, also in the network namespace of the container"
            }
            Errno::OPNOTSUPP => ": load the module `veth`",
            _ => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_there_is_an_error() {
        assert!(is_other_end_elsewhere("there is none").is_err());
        assert!(!is_other_end_elsewhere("lo").unwrap(), "loopback has no other end");
    }
}
