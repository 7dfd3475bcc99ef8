//! Lines for monitors that open a TAP device, which the switch has as a port by `packet`.

use api::body::PortBody;
use config::{Device, PortRole};
use problem::Problem;

/// A port at a monitor's TAP device as the lines for its guest need it.
pub(crate) struct TapVnic {
    name: String,
    device: String,
    mac: Option<String>,
}

impl TapVnic {
    /// Returns the lines' values for a port.
    ///
    /// # Errors
    /// The port is no vNIC at a network device of the host.
    pub(crate) fn of(port: &PortBody) -> Result<TapVnic, Problem> {
        let config = &port.config;
        let Device::Packet(device) = config.device() else { return Err(not_a_tap(port)) };
        if config.role() == PortRole::Uplink {
            return Err(not_a_tap(port));
        }
        let (name, device) = (port.name.clone(), device.to_string());
        Ok(TapVnic { name, device, mac: config.mac.map(|mac| mac.0.to_string()) })
    }

    /// Returns the part of Firecracker's configuration.
    pub(crate) fn firecracker(&self) -> String {
        let TapVnic { name, device, .. } = self;
        let mac = self
            .mac
            .as_ref()
            .map_or_else(String::new, |mac| format!("      \"guest_mac\": \"{mac}\",\n"));
        format!(
            "\
# Once, before the guest (no address, and nothing that answers in the host):
#   ip tuntap add {device} mode tap vnet_hdr
#   sysctl -w net.ipv6.conf.{device}.disable_ipv6=1 net.ipv4.conf.{device}.arp_ignore=8
#   ip link set {device} up
# For this vNIC, in the file of --config-file:
  \"network-interfaces\": [
    {{
      \"iface_id\": \"{name}\",
{mac}      \"host_dev_name\": \"{device}\"
    }}
  ]
# It has no vhost-user: each byte is copied twice.
{}",
            self.address_note()
        )
    }

    /// Returns the lines of a Proxmox guest and of its hook script.
    pub(crate) fn proxmox(&self) -> String {
        let TapVnic { device, .. } = self;
        let mac = self.mac.as_ref().map_or_else(String::new, |mac| format!("={mac}"));
        format!(
            "\
# Proxmox names the device tapVMIDi0, so {device} has to be that name. It puts it into a bridge, which
# should have no other port. For this vNIC, in /etc/pve/qemu-server/VMID.conf:
net0: virtio{mac},bridge=vmbr9,firewall=0
# In the guest's hook script (`qm set VMID --hookscript local:snippets/NAME`), at `post-start`:
ip link set {device} nomaster
sysctl -w net.ipv6.conf.{device}.disable_ipv6=1 net.ipv4.conf.{device}.arp_ignore=8
{}",
            self.address_note()
        )
    }

    /// Returns a comment for a port without an address.
    fn address_note(&self) -> String {
        if self.mac.is_some() {
            return String::new();
        }
        let TapVnic { name, .. } = self;
        format!(
            "# The port has no `mac`: it is held to the first address that the guest sends from.\n\
             #   millrace port set {name} mac=ADDRESS\n"
        )
    }
}

fn not_a_tap(port: &PortBody) -> Problem {
    Problem::new(format!("port {} is not a vNIC at a monitor's TAP device", port.name))
        .seen(&port.device)
        .wanted("a port with `packet` and `role = \"vnic\"`")
        .remedy("add one with `millrace port add NAME --packet DEVICE --role vnic`, see docs/tap-vmms.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_names_the_device_and_the_address() {
        let mac = Some("52:54:00:00:00:02".to_owned());
        let vnic = TapVnic { name: "vm1".into(), device: "tap100i0".into(), mac };
        let firecracker = vnic.firecracker();
        let json = firecracker.lines().filter(|line| !line.starts_with('#')).collect::<String>();
        let json: serde_json::Value = serde_json::from_str(&format!("{{{json}}}")).unwrap();
        let interface = &json["network-interfaces"][0];
        assert_eq!(interface["host_dev_name"], "tap100i0");
        assert_eq!(interface["guest_mac"], "52:54:00:00:00:02");
        assert!(vnic.proxmox().contains("net0: virtio=52:54:00:00:00:02,bridge="));
        assert!(vnic.proxmox().contains("\nip link set tap100i0 nomaster\n"));
        let without = TapVnic { mac: None, ..vnic };
        for text in [without.firecracker(), without.proxmox()] {
            assert!(text.ends_with("mac=ADDRESS\n") && !text.contains("guest_mac"), "{text}");
        }
    }
}
