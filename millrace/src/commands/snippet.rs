//! Options for QEMU, libvirt and other monitors that connect a guest to a vhost-user port.
//!
//! The stories boot their guests with these options, and add vNICs by [`monitor`].

mod monitor;
mod taps;
mod vmms;

pub(crate) use taps::TapVnic;

use api::body::PortBody;
use config::{Device, Scale};
use problem::Problem;
use std::hash::{BuildHasher, RandomState};

/// A vhost-user port as the options for its guest need it.
pub(crate) struct Vnic {
    name: String,
    socket: String,
    /// Whether the front end listens.
    guest_listens: bool,
    /// Whether the port sets the owner or group of its socket.
    shared: bool,
    queues: u16,
    mac: Option<String>,
    /// MTU; `None` at 1500.
    mtu: Option<u16>,
}

/// Returns an address for a guest, in the range that QEMU uses, drawn anew at each call.
pub(crate) fn drawn_address(name: &str) -> String {
    let [a, b, c, ..] = RandomState::new().hash_one(name).to_ne_bytes();
    format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
}

impl Vnic {
    /// Ring size in descriptors: QEMU's maximum, because a burst that does not fit is dropped.
    const RING: u16 = 1024;

    /// Returns the options' values for a vhost-user port.
    ///
    /// # Errors
    /// The port is not a vhost-user port.
    pub(crate) fn of(port: &PortBody) -> Result<Vnic, Problem> {
        let config = &port.config;
        let Device::VhostUser(socket) = config.device() else {
            return Err(Problem::new(format!("port {} is not a vhost-user port", port.name))
                .seen(&port.device)
                .wanted("a vhost-user port")
                .remedy("add one with `millrace port add NAME --vhost-user PATH`"));
        };
        Ok(Vnic {
            name: port.name.clone(),
            socket: socket.to_string(),
            guest_listens: config.vhost_client == Some(true),
            shared: config.socket_group.is_some() || config.socket_owner.is_some(),
            queues: config.queue_pairs(Scale::ONE),
            mac: config.mac.map(|mac| mac.0.to_string()),
            mtu: config.mtu.map(|mtu| mtu.0).filter(|mtu| *mtu != 1500),
        })
    }

    /// Returns the interrupt vectors of a device with several queue pairs; `None` for one, whose
    /// default is right.
    fn vectors(&self) -> Option<u32> {
        // One vector per ring, one for the control queue, one for configuration changes.
        (self.queues > 1).then(|| 2 * u32::from(self.queues) + 2)
    }

    /// Returns options of `qemu-system-x86_64`. The guest's memory must be shared, once for all its
    /// vNICs.
    pub(crate) fn qemu(&self) -> String {
        let Vnic { name, queues, .. } = self;
        // QEMU wants a comma within a value written twice.
        let socket = self.socket.replace(',', ",,");
        let side = if self.guest_listens { "server=on" } else { "reconnect=1" };
        let mut device = format!(
            "virtio-net-pci,id={name},netdev={name}-net,rx_queue_size={0},tx_queue_size={0}",
            Vnic::RING
        );
        if let Some(vectors) = self.vectors() {
            device += &format!(",mq=on,vectors={vectors}");
        }
        device += &self.mac.as_ref().map_or_else(String::new, |mac| format!(",mac={mac}"));
        device += &self.mtu.map_or_else(String::new, |mtu| format!(",host_mtu={mtu}"));
        let address = self.address_note();
        format!(
            "\
{address}# Once per guest; size is that of -m:
-object memory-backend-memfd,id=memory,size=1G,share=on
-machine memory-backend=memory
# For this vNIC:
-chardev socket,id={name}-socket,path={socket},{side}
-netdev vhost-user,id={name}-net,chardev={name}-socket,queues={queues}
-device {device}
"
        )
    }

    /// Returns a comment for a port without an address: all guests of QEMU that are given none have
    /// the same, whatever their host, and reach each other as little as themselves.
    fn address_note(&self) -> String {
        if self.mac.is_some() {
            return String::new();
        }
        format!(
            "\
# The port has no `mac`, so the guest gets QEMU's default, 52:54:00:12:34:56, as every other guest
# without one. To give it an address of its own, drawn for it just now, and print this again:
#   millrace port set {0} mac={1}
",
            self.name,
            drawn_address(&self.name)
        )
    }

    /// Returns elements of a libvirt domain, and what adds them to a running one.
    pub(crate) fn libvirt(&self) -> String {
        let socket = escaped(&self.socket);
        let source = if self.guest_listens {
            format!("<source type='unix' path='{socket}' mode='server'/>")
        } else {
            format!(
                "<source type='unix' path='{socket}' mode='client'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>"
            )
        };
        // With <reconnect> libvirt does not report a refused connection: the guest's start hangs.
        let access = if self.guest_listens || self.shared {
            ""
        } else {
            "<!-- libvirt runs QEMU as its own user. If that user may not connect, the guest hangs at startup:\n\
             give the port `socket-group = \"kvm\"`. -->\n"
        };
        let line = |text: Option<String>| text.map_or_else(String::new, |text| text + "\n  ");
        let mac = line(self.mac.as_ref().map(|mac| format!("<mac address='{mac}'/>")));
        let target = line(target(&self.name).map(|name| format!("<target dev='{name}'/>")));
        let mtu = line(self.mtu.map(|mtu| format!("<mtu size='{mtu}'/>")));
        format!(
            "\
<!-- Once per guest: -->
<memoryBacking>
  <source type='memfd'/>
  <access mode='shared'/>
</memoryBacking>
{access}<!-- For this vNIC, among the devices. To a running guest: this element alone in FILE.xml, then
     virsh attach-device GUEST FILE.xml
and to remove it
     virsh detach-device GUEST FILE.xml -->
<interface type='vhostuser'>
  {mac}{source}
  {target}{mtu}<model type='virtio'/>
  <driver queues='{}' rx_queue_size='{ring}' tx_queue_size='{ring}'/>
</interface>
",
            self.queues,
            ring = Vnic::RING,
        )
    }
}

/// Returns the port's name as the name of a guest's device, which libvirt shows in `domiflist`. It
/// takes no longer ones than the kernel, and keeps some for itself.
fn target(name: &str) -> Option<&str> {
    let own = ["vnet", "vif", "macvtap", "macvlan"].iter().any(|own| name.starts_with(own));
    (name.len() < 16 && !own).then_some(name)
}

/// Escapes a text for an attribute in single quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn vnic() -> Vnic {
        Vnic {
            name: "vm1".into(),
            socket: "/run/a,b&'c.sock".into(),
            guest_listens: false,
            shared: false,
            queues: 4,
            mac: Some("52:54:00:00:00:01".into()),
            mtu: Some(9000),
        }
    }

    #[test]
    fn a_path_is_written_as_each_side_reads_it() {
        assert!(vnic().qemu().contains("path=/run/a,,b&'c.sock,reconnect=1\n"));
        assert!(vnic().libvirt().contains("path='/run/a,b&amp;&apos;c.sock' mode='client'"));
        let listening = Vnic { guest_listens: true, ..vnic() };
        assert!(listening.qemu().contains(",server=on\n"));
        assert!(listening.libvirt().contains("mode='server'/>"));
        assert!(!listening.libvirt().contains("socket-group"));
        assert!(vnic().libvirt().contains("give the port `socket-group"));
        assert!(!Vnic { shared: true, ..vnic() }.libvirt().contains("socket-group"));
    }

    #[test]
    fn what_the_port_has_the_guest_gets() {
        let qemu = vnic().qemu();
        assert!(qemu.contains(",queues=4\n") && qemu.contains("mq=on,vectors=10"), "{qemu}");
        assert!(qemu.contains("mac=52:54:00:00:00:01,host_mtu=9000\n"), "{qemu}");
        let libvirt = vnic().libvirt();
        assert!(libvirt.contains("virsh attach-device") && libvirt.contains("virsh detach-device"));
        for part in ["queues='4'", "<mac address='52:54:00:00:00:01'/>", "<mtu size='9000'/>"] {
            assert!(libvirt.contains(part), "{libvirt}");
        }
        let plain = Vnic { queues: 1, mac: None, mtu: None, ..vnic() };
        assert!(!plain.qemu().contains("mq=on") && !plain.qemu().contains(",mac="));
        assert!(plain.qemu().contains("#   millrace port set vm1 mac=52:54:00:"));
        assert!(!vnic().qemu().contains("has no `mac`"));
        assert!(!plain.libvirt().contains("<mac") && !plain.libvirt().contains("<mtu"));
    }
}
