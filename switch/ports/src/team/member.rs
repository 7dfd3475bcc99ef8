//! A member: any port of one queue pair on a link of the host.

use crate::link::{Carrier, Link};
use crate::packet::{self, PacketError, PacketOptions, StallWatch};
use crate::{Device, EgressQueue, IngressQueue, Offloads};
use std::path::Path;
use wire::Mac;

/// An opened member.
pub struct Member {
    pub(super) ingress: IngressQueue,
    pub(super) egress: EgressQueue,
    pub(super) offloads: Offloads,
    pub(super) datagrams: u16,
    pub(super) mtu: u16,
    pub(super) mac: Mac,
    pub(super) link: Option<Link>,
    /// `None`: it is not known without asking the link, or there is none.
    pub(super) carrier: Option<Carrier>,
    pub(super) stalls: Option<StallWatch>,
    pub(super) degraded: Vec<String>,
}

/// Whether a member carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The member carries frames.
    Up,
    /// The member carries none, for this reason.
    Down(String),
}

/// Why a member did not open.
#[derive(Clone, Debug)]
pub struct MemberError {
    /// Reason as text for people.
    pub reason: String,
    /// Whether this process lacks a privilege.
    pub denied: bool,
}

/// Opens the member with this name.
pub type MemberOpener = dyn Fn(&str) -> Result<Member, MemberError> + Send + Sync;

impl Member {
    /// Makes a member of the first queue pair of a device, with the link behind it. Without a link
    /// it is up until [`Team::note`] says otherwise. `None`: the device has no queue pair.
    ///
    /// [`Team::note`]: super::Team::note
    pub fn new(device: Device, link: Option<Link>) -> Option<Member> {
        Some(Member {
            offloads: device.live.offloads(),
            datagrams: device.live.datagrams(),
            mtu: device.mtu,
            mac: device.mac.unwrap_or_default(),
            ingress: device.ingress.into_iter().next()?,
            egress: device.egress.into_iter().next()?,
            carrier: link.as_ref().and_then(Carrier::of),
            link,
            stalls: None,
            degraded: Vec::new(),
        })
    }

    /// Returns the kernel's number of its device; `None` if it has no link, or the device is gone.
    pub(super) fn index(&self) -> Option<u32> {
        self.link.as_ref()?.index().ok()
    }

    /// Opens an interface of the host as a member, by AF_PACKET.
    ///
    /// # Errors
    /// Fails if the packet port cannot be opened.
    pub fn packet(name: &str, netns: Option<&Path>) -> Result<Member, PacketError> {
        let options =
            PacketOptions { netns: netns.map(Path::to_owned), ..PacketOptions::new(name) };
        let opened = packet::open(&options)?;
        let down = || PacketError::Down { interface: name.to_owned() };
        let member = Member::new(opened.device, Some(opened.link)).ok_or_else(down)?;
        Ok(Member { stalls: Some(opened.stalls), degraded: opened.degraded, ..member })
    }
}
