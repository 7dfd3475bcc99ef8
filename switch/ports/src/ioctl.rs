// UNSAFETY: an ioctl reads and writes through an untyped pointer; here each call gets the type its
// request expects.
//! The ioctls of network links and TAP devices, one safe function each.
//!
//! `struct ifreq` is a name and a union; it is kept as a name and plain bytes, so that only the
//! calls themselves are unsafe. Used by `link` and `tap`.
#![allow(unsafe_code)]

use libc::c_int;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `struct ifreq`: a device name, and bytes that each request interprets in its own way.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

// The kernel copies a whole `struct ifreq` in and out.
const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

#[cfg(test)]
thread_local! {
    /// How many times this thread has asked about a device by its name.
    pub(crate) static ASKED_BY_NAME: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Requests with plain values in the union, never a pointer.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    /// `SIOCGIFINDEX`: the index as `int`.
    GetIndex,
    /// `SIOCGIFNAME`: takes the index as `int`; the name comes back.
    GetName,
    /// `SIOCGIFMTU`: bytes as `int`.
    GetMtu,
    /// `SIOCSIFMTU`.
    SetMtu,
    /// `SIOCGIFHWADDR`: a `sockaddr`, the address two bytes in.
    GetAddress,
    /// `SIOCSIFHWADDR`.
    SetAddress,
    /// `SIOCGIFADDR`: the first IPv4 address as `sockaddr_in`, four bytes in.
    GetIpv4,
    /// `SIOCGIFFLAGS`: `IFF_*` as `short`.
    GetFlags,
    /// `SIOCSIFFLAGS`.
    SetFlags,
    /// `SIOCSIFTXQLEN`: frames as `int`.
    SetQueueLength,
    /// `TUNSETIFF`: `IFF_*` of TAP devices as `short`; the name comes back.
    Attach,
    /// `TUNGETIFF`: name and `IFF_*` of the TAP device that a descriptor is attached to.
    Attached,
}

impl Plain {
    fn code(self) -> libc::Ioctl {
        let code = match self {
            Plain::GetIndex => libc::SIOCGIFINDEX,
            Plain::GetName => libc::SIOCGIFNAME,
            Plain::GetMtu => libc::SIOCGIFMTU,
            Plain::SetMtu => libc::SIOCSIFMTU,
            Plain::GetAddress => libc::SIOCGIFHWADDR,
            Plain::SetAddress => libc::SIOCSIFHWADDR,
            Plain::GetIpv4 => libc::SIOCGIFADDR,
            Plain::GetFlags => libc::SIOCGIFFLAGS,
            Plain::SetFlags => libc::SIOCSIFFLAGS,
            Plain::SetQueueLength => libc::SIOCSIFTXQLEN,
            Plain::Attach => return libc::TUNSETIFF,
            Plain::Attached => return libc::TUNGETIFF,
        };
        code as libc::Ioctl
    }
}

impl Request {
    /// Creates a request about a device. Fails if the name is longer than 15 bytes, which leave
    /// room for its terminating zero.
    pub(crate) fn new(name: &str) -> io::Result<Request> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        let fits = name.len() < libc::IFNAMSIZ && !name.contains('\0');
        match request.name.get_mut(..name.len()) {
            Some(place) if fits => place.copy_from_slice(name.as_bytes()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a device name")),
        }
        Ok(request)
    }

    /// Sets the leading `short` (flags) of the union.
    pub(crate) fn short(mut self, value: i16) -> Request {
        self.value[..2].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Sets the leading `int` of the union.
    pub(crate) fn int(mut self, value: i32) -> Request {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Sets the union's `sockaddr` to an Ethernet address.
    pub(crate) fn address(mut self, address: [u8; 6]) -> Request {
        self.value[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        self.value[2..8].copy_from_slice(&address);
        self
    }

    /// Returns the leading `short` of the answer.
    pub(crate) fn as_short(&self) -> i16 {
        i16::from_ne_bytes([self.value[0], self.value[1]])
    }

    /// Returns the leading `int` of the answer.
    pub(crate) fn as_int(&self) -> i32 {
        i32::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]])
    }

    /// Returns the hardware address of the answer.
    pub(crate) fn as_address(&self) -> [u8; 6] {
        let [_, _, a, b, c, d, e, f, ..] = self.value;
        [a, b, c, d, e, f]
    }

    /// Returns the IPv4 address of the answer.
    pub(crate) fn as_ipv4(&self) -> Ipv4Addr {
        let [_, _, _, _, a, b, c, d, ..] = self.value;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the device name of the answer.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.name.split(|&byte| byte == 0).next().unwrap_or_default())
            .into_owned()
    }

    /// Makes the request and returns the answer. Fails with the kernel's error.
    pub(crate) fn call(mut self, fd: impl AsFd, plain: Plain) -> io::Result<Request> {
        #[cfg(test)]
        ASKED_BY_NAME.set(ASKED_BY_NAME.get() + usize::from(!matches!(plain, Plain::GetName)));
        // SAFETY: every `Plain` request reads and writes one `struct ifreq`, which `Request` is
        // laid out as.
        unsafe { call(fd, plain.code(), (&raw mut self).cast()) }?;
        Ok(self)
    }
}

/// Reads or sets one `ethtool_value` (`SIOCETHTOOL`): `command` is an `ETHTOOL_G*` or `ETHTOOL_S*`
/// of that shape. Fails if the driver lacks the command.
pub(crate) fn ethtool(fd: impl AsFd, name: &str, command: Ethtool, value: u32) -> io::Result<u32> {
    // SAFETY: all commands of `Ethtool` read and write a `struct ethtool_value`, two words, alone.
    let [_, answer] = unsafe { exchange(fd, name, [command as u32, value]) }?;
    Ok(answer)
}

/// Returns the speed of a device in megabits a second (`ETHTOOL_GSET`); all ones or 0 if the device
/// does not know it. Fails if the driver lacks the command.
pub(crate) fn ethtool_speed(fd: impl AsFd, name: &str) -> io::Result<u32> {
    const GET_SETTINGS: u32 = 1;
    let mut settings = [0; 11];
    settings[0] = GET_SETTINGS;
    // SAFETY: the command reads and writes a `struct ethtool_cmd`, 44 bytes.
    let settings = unsafe { exchange(fd, name, settings) }?;
    let bytes = settings.map(u32::to_ne_bytes);
    let half = |word: usize| {
        bytes.get(word).map_or(0, |[a, b, ..]| u32::from(u16::from_ne_bytes([*a, *b])))
    };
    // `speed` and `speed_hi` lead their words.
    Ok(half(7) << 16 | half(3))
}

/// Returns the name of a device's driver (`ETHTOOL_GDRVINFO`). Fails if the driver lacks the
/// command.
pub(crate) fn driver(fd: impl AsFd, name: &str) -> io::Result<String> {
    const GET_DRIVER: u32 = 3;
    let mut facts = [0; 49];
    facts[0] = GET_DRIVER;
    // SAFETY: the command reads and writes a `struct ethtool_drvinfo`, 196 bytes.
    let facts = unsafe { exchange(fd, name, facts) }?;
    // The driver's name is the 32 bytes behind the command.
    let bytes: Vec<u8> = facts[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Returns the receive and transmit queues of a device (`ETHTOOL_GCHANNELS`); combined queues count
/// as both. Fails if the driver lacks the command.
pub(crate) fn queues(fd: impl AsFd, name: &str) -> io::Result<(u32, u32)> {
    const GET_CHANNELS: u32 = 0x3c;
    // The command, four maxima, then receive, transmit, other and combined queues.
    let channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the command reads and writes a `struct ethtool_channels`, nine words.
    let [.., receive, transmit, _, combined] = unsafe { exchange(fd, name, channels) }?;
    Ok((receive.saturating_add(combined), transmit.saturating_add(combined)))
}

/// Runs one command of ethtool (`SIOCETHTOOL`). Takes the words of its struct, the command first,
/// and returns them as the kernel leaves them.
///
/// # Safety
/// The command reads and writes these words alone.
unsafe fn exchange<const WORDS: usize>(
    fd: impl AsFd,
    name: &str,
    mut words: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    #[cfg(test)]
    ASKED_BY_NAME.set(ASKED_BY_NAME.get() + 1);
    let mut request = Request::new(name)?;
    let pointer = (&raw mut words) as usize;
    request.value[..size_of::<usize>()].copy_from_slice(&pointer.to_ne_bytes());
    // SAFETY: the request carries a pointer to `words`, which outlives the call; the caller says
    // that no more is touched.
    unsafe { call(fd, libc::SIOCETHTOOL as libc::Ioctl, (&raw mut request).cast()) }?;
    Ok(words)
}

/// The commands of `linux/ethtool.h` that take a `struct ethtool_value`, which `libc` lacks.
#[derive(Clone, Copy)]
#[repr(u32)]
#[allow(missing_docs, reason = "named as in linux/ethtool.h: get or set, and the feature")]
pub(crate) enum Ethtool {
    GetLink = 0x0a,
    GetRxCsum = 0x14,
    SetRxCsum = 0x15,
    /// Bits of features, `ETH_FLAG_*`.
    GetFlags = 0x25,
    GetTxCsum = 0x16,
    SetTxCsum = 0x17,
    GetTso = 0x1e,
    SetTso = 0x1f,
    GetGso = 0x23,
    SetGso = 0x24,
    GetGro = 0x2b,
    SetGro = 0x2c,
}

/// Sets the work that the kernel may leave to the reader of a TAP device (`TUN_F_*`). Fails if the
/// kernel does not know a bit.
pub(crate) fn tap_set_offload(fd: impl AsFd, features: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes the bits in place of a pointer and touches no memory of ours.
    unsafe { call(fd, libc::TUNSETOFFLOAD, features as usize as *mut libc::c_void) }
}

/// A TAP setting that takes a pointer to an `int`.
#[derive(Clone, Copy)]
pub(crate) enum TapSetting {
    /// Bytes of the virtio-net header.
    HeaderSize,
    /// Whether the header's fields are little-endian.
    LittleEndian,
    /// Bytes that the kernel holds of frames written and not yet taken.
    SendBuffer,
}

/// Changes a setting of a TAP device. Fails if the kernel refuses it.
pub(crate) fn tap_set(fd: impl AsFd, setting: TapSetting, mut value: c_int) -> io::Result<()> {
    let code = match setting {
        TapSetting::HeaderSize => libc::TUNSETVNETHDRSZ,
        TapSetting::LittleEndian => libc::TUNSETVNETLE,
        TapSetting::SendBuffer => libc::TUNSETSNDBUF,
    };
    // SAFETY: each of these reads one int.
    unsafe { call(fd, code, (&raw mut value).cast()) }
}

/// Returns the network namespace of the device that a TAP descriptor is attached to. Fails without
/// `CAP_NET_ADMIN` there.
pub(crate) fn tap_namespace(fd: impl AsFd) -> io::Result<OwnedFd> {
    namespace(fd, libc::TUNGETDEVNETNS)
}

/// Returns the network namespace of a socket. Fails without `CAP_NET_ADMIN` there.
pub(crate) fn socket_namespace(fd: impl AsFd) -> io::Result<OwnedFd> {
    /// `SIOCGSKNS`
    const GET_NAMESPACE: libc::Ioctl = 0x894c;
    namespace(fd, GET_NAMESPACE)
}

fn namespace(fd: impl AsFd, code: libc::Ioctl) -> io::Result<OwnedFd> {
    // SAFETY: both requests take no argument and touch no memory of ours.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), code) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has made this descriptor for the call.
        namespace => Ok(unsafe { OwnedFd::from_raw_fd(namespace) }),
    }
}

/// Makes an ioctl and drops its result.
///
/// # Safety
/// `argument` must be what `code` expects, valid for reads and writes of that type until the call
/// is back.
unsafe fn call(fd: impl AsFd, code: libc::Ioctl, argument: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the caller vouches for the argument.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), code, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_refused() {
        assert!(Request::new("exactly15bytes_").is_ok());
        assert!(Request::new("sixteen_bytes_xx").is_err());
        assert!(Request::new("a\0b").is_err());
    }

    #[test]
    fn values_come_back_as_set() {
        let request = Request::new("tap0").unwrap().int(-7);
        assert_eq!((request.as_int(), request.name().as_str()), (-7, "tap0"));
        assert_eq!(request.short(0x1002).as_short(), 0x1002);
    }
}
