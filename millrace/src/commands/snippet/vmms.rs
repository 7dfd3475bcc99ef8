//! Options for monitors other than QEMU, each with what it limits.

use super::Vnic;

/// A note for monitors that only connect.
const ONLY_CONNECTS: &str =
    "# This port connects (`vhost-client = true`), and so does this monitor: remove that key.\n";

impl Vnic {
    /// Returns options of `cloud-hypervisor`.
    pub(crate) fn cloud_hypervisor(&self) -> String {
        let Vnic { socket, queues, .. } = self;
        let side = if self.guest_listens { ",vhost_mode=server" } else { "" };
        let mac = self.mac.as_ref().map_or_else(String::new, |mac| format!(",mac={mac}"));
        format!(
            "\
# Once per guest; `shared=on` beside the size:
--memory size=1G,shared=on
# For this vNIC:
--net vhost_user=true,socket={socket},num_queues={0},queue_size={1}{mac}{side}
# It takes the MTU from the port. Its guests have split rings and no UDP trains, and it serves the
# control queue itself: the port's `steer` names the queues, not the guest.
",
            2 * queues,
            Vnic::RING
        )
    }

    /// Returns options of `openvmm`.
    pub(crate) fn openvmm(&self) -> String {
        let Vnic { socket, queues, .. } = self;
        let client = if self.guest_listens { ONLY_CONNECTS } else { "" };
        let rings = vec!["256"; usize::from(2 * queues)].join(",");
        format!(
            "\
{client}# Device 1 is a network device; its rings are {queues} times receive and send, then the control queue:
--vhost-user {socket},device_id=1,queue_sizes=[{rings},64]
# It does not connect again: a switch that is replaced takes its sessions along, one that crashes
# does not. It cannot migrate guests. The guest sets its own RSS, filter and VLANs.
"
        )
    }

    /// Returns options of `crosvm run`.
    pub(crate) fn crosvm(&self) -> String {
        let Vnic { socket, .. } = self;
        let client = if self.guest_listens { ONLY_CONNECTS } else { "" };
        format!(
            "\
{client}--vhost-user net,socket={socket}
# Its guests have split rings. The guest sets its own RSS, filter and VLANs.
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::vnic;
    use super::*;

    #[test]
    fn each_monitor_gets_the_rings_of_the_port() {
        let ch = vnic().cloud_hypervisor();
        assert!(ch.contains("num_queues=8,queue_size=1024,mac=52:54:00:00:00:01\n"), "{ch}");
        assert!(vnic().openvmm().contains("queue_sizes=[256,256,256,256,256,256,256,256,64]\n"));
        assert!(vnic().crosvm().starts_with("--vhost-user net,socket=/run/a,b&'c.sock\n"));
    }

    #[test]
    fn one_that_cannot_listen_says_so() {
        let listening = Vnic { guest_listens: true, ..vnic() };
        assert!(listening.cloud_hypervisor().contains(",vhost_mode=server\n"));
        for text in [listening.openvmm(), listening.crosvm()] {
            assert!(text.contains("remove that key"), "{text}");
        }
        assert!(!vnic().crosvm().contains("remove that key"));
    }
}
