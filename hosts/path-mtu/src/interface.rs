// UNSAFETY: the addresses of this host come as a linked list of C structs from `getifaddrs`.
//! The addresses of this host's devices.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;

/// An address of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The device's name.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// The netmask.
    pub mask: IpAddr,
}

impl Address {
    /// Returns the length of its subnet's prefix.
    pub fn prefix(&self) -> u8 {
        let ones = match self.mask {
            IpAddr::V4(mask) => mask.to_bits().leading_ones(),
            IpAddr::V6(mask) => mask.to_bits().leading_ones(),
        };
        u8::try_from(ones).unwrap_or(u8::MAX)
    }

    /// Whether another address is in the same network.
    pub fn is_near(&self, other: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let same = (bits(self.ip) ^ bits(other)) & bits(self.mask) == 0;
        same && self.ip.is_ipv4() == other.is_ipv4()
    }
}

/// Returns all IPv4 and IPv6 addresses of the calling thread's network namespace.
///
/// # Errors
/// Fails if the kernel does not return them.
pub fn addresses() -> io::Result<Vec<Address>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: writes a pointer to a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut entry) = (Vec::new(), list);
    // SAFETY: `getifaddrs` made a list of entries that end with a null pointer and stay until they
    // are freed.
    while let Some(it) = unsafe { entry.as_ref() } {
        // SAFETY: each entry has a name that ends with a zero byte, and null or complete addresses.
        let (name, ip, mask) =
            unsafe { (CStr::from_ptr(it.ifa_name), read(it.ifa_addr), read(it.ifa_netmask)) };
        if let (Some(ip), Some(mask)) = (ip, mask) {
            found.push(Address { interface: name.to_string_lossy().into_owned(), ip, mask });
        }
        entry = it.ifa_next;
    }
    // SAFETY: made by `getifaddrs`, and nothing keeps a reference into it.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Returns the name of the device that has an address.
pub(crate) fn name_of(ip: IpAddr) -> Option<String> {
    let addresses = addresses().ok()?;
    addresses.into_iter().find(|address| address.ip == ip).map(|address| address.interface)
}

/// Returns the MTU of the device that has this address.
pub fn device_mtu(ip: IpAddr) -> Option<u16> {
    let link = ports::link::Link::open(&name_of(ip)?, None).ok()?;
    link.mtu().ok().map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Returns the IP address in a socket address.
///
/// # Safety
/// `address` is null or points to a socket address as long as its family says.
pub(crate) unsafe fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: as the caller promises, for this family.
            let ip = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(ip.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let ip = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(ip.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_them_with_its_mask() {
        let all = addresses().unwrap();
        let own = all.iter().find(|address| address.ip == IpAddr::from([127, 0, 0, 1])).unwrap();
        assert_eq!((own.interface.as_str(), own.mask), ("lo", IpAddr::from([255, 0, 0, 0])));
        assert_eq!(own.prefix(), 8);
        assert!(own.is_near(IpAddr::from([127, 1, 2, 3])) && !own.is_near(IpAddr::from([10; 4])));
        assert_eq!(name_of(own.ip).as_deref(), Some("lo"));
        assert_eq!(device_mtu(own.ip), Some(u16::MAX));
        assert_eq!(device_mtu(IpAddr::from([192, 0, 2, 77])), None);
    }
}
