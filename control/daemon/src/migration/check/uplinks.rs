//! The uplinks of a host, each with what it carries. They are computed once, because a file may
//! name thousands of them and each VLAN is looked up.

use crate::health::Picture;
use crate::migration::HostExport;
use api::body::PortBody;
use config::{PortConfig, PortRole};
use std::collections::BTreeMap;

/// The uplinks of a host.
pub(in super::super) struct Uplinks<'h>(Vec<Uplink<'h>>);

pub(super) struct Uplink<'h> {
    pub(super) port: &'h PortBody,
    picture: Picture,
    /// The smallest MTU of the uplink and of the devices below it.
    pub(super) mtu: Option<u16>,
}

impl Uplink<'_> {
    pub(super) fn carries(&self, vlan: u16) -> bool {
        self.picture.carries(vlan)
    }
}

impl<'h> Uplinks<'h> {
    pub(in super::super) fn of(host: &'h HostExport) -> Uplinks<'h> {
        let mut below: BTreeMap<&str, u16> = BTreeMap::new();
        for port in &host.mtu.ports {
            for link in &port.links {
                let least = below.entry(&port.port).or_insert(link.mtu);
                *least = link.mtu.min(*least);
            }
        }
        let uplinks = host.ports.iter().filter(|port| port.role == PortRole::Uplink);
        let uplink = |port: &'h PortBody| {
            let mtu = below.get(port.name.as_str()).copied().into_iter().chain(port.mtu).min();
            Uplink { port, picture: Picture::of(&port.config), mtu }
        };
        Uplinks(uplinks.map(uplink).collect())
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &PortBody> {
        self.0.iter().map(|uplink| uplink.port)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Uplink<'h>> {
        self.0.iter().find(|uplink| uplink.port.name == name)
    }

    /// Returns the uplinks that carry a VLAN (0 for untagged).
    pub(super) fn with(&self, vlan: u16) -> impl Iterator<Item = &Uplink<'h>> {
        self.0.iter().filter(move |uplink| uplink.carries(vlan))
    }

    /// Returns the VLANs of a port that leave the host, each with the largest packet that does, if
    /// known.
    pub(in super::super) fn widest(&self, config: &PortConfig) -> BTreeMap<u16, Option<u16>> {
        let of_vlan = |vlan| {
            let mut there = self.with(vlan).map(|uplink| uplink.mtu).peekable();
            there.peek()?;
            Some((vlan, there.max().flatten()))
        };
        vlans(config).filter_map(of_vlan).collect()
    }
}

/// Returns the VLANs of a port.
pub(in super::super) fn vlans(config: &PortConfig) -> impl Iterator<Item = u16> + use<> {
    let picture = Picture::of(config);
    (0..4095).filter(move |vlan| picture.carries(*vlan))
}
