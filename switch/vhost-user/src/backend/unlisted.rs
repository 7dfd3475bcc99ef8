//! Carries out the messages that the `vhost` crate does not know, see [`message`](crate::message).

use super::Backend;
use crate::State;
use crate::closer::close_aside;
use crate::message::Request;
use std::os::fd::OwnedFd;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Error, Result, VhostUserBackendReqHandlerMut};

impl Backend {
    /// Carries out a request that came with these files. Returns its answer, or 0 for success if it
    /// has none. Fails if the request needs a protocol feature that was not negotiated, or is
    /// refused.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        needed: VhostUserProtocolFeatures,
        mut files: Vec<OwnedFd>,
    ) -> Result<u64> {
        let mut channel = match request {
            Request::SetChannel => files.pop(),
            _ => None,
        };
        let is_active = self.protocol.contains(needed);
        files.extend(channel.take_if(|_| !is_active));
        // Of messages that should have none.
        if !files.is_empty() {
            close_aside(files);
        }
        if !is_active {
            return Err(Error::InactiveOperation(needed));
        }
        match request {
            Request::Enable { ring, enable } => self.set_vring_enable(ring, enable).map(|()| 0),
            Request::Announce(address) => {
                self.address = Some(address);
                self.announce();
                Ok(0)
            }
            Request::SetMtu(mtu) => Ok(self.set_mtu(mtu)),
            Request::SetStatus(status) => {
                self.set_status(status);
                Ok(0)
            }
            Request::GetStatus => Ok(self.device_status),
            Request::SetChannel => self.set_channel(channel).map(|()| 0),
        }
    }

    /// Notes the MTU that was announced to the guest. Returns 0, or 1 to refuse one that is larger
    /// than the port's: QEMU then does not start the guest. The port would drop its large frames.
    pub(super) fn set_mtu(&mut self, mtu: u64) -> u64 {
        self.told_mtu = Some(mtu);
        let own = self.shared.options.mtu;
        let fits = mtu <= own.into();
        self.unfit = (!fits).then(|| {
            format!(
                "the guest was told of an MTU of {mtu}, this port has {own}: raise the port's `mtu`, or lower the guest's \
                 (QEMU's `host_mtu`)"
            )
        });
        self.tell(State::Connected);
        u64::from(!fits)
    }

    /// Stores the device status, for the front end to read back. Status 0 is a reset and stops all
    /// rings.
    fn set_status(&mut self, status: u64) {
        self.device_status = status;
        if status == 0 {
            self.stop_each();
            self.forget_commands();
            self.tell(State::Connected);
        }
    }
}
