//! What the messages do that the `vhost` crate does not list, see [`message`](crate::message).

use super::Backend;
use crate::State;
use crate::message::Request;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Error, Result, VhostUserBackendReqHandlerMut};

impl Backend {
    /// Does what is asked and gives the answer, which is 0 where only success is.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        needed: VhostUserProtocolFeatures,
    ) -> Result<u64> {
        if !self.protocol.contains(needed) {
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
        }
    }

    /// A guest that was told of a larger MTU would send what this port drops: QEMU does not start
    /// it after a refusal.
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

    /// Kept for the front end to read back. 0 is a reset: no ring runs any longer.
    fn set_status(&mut self, status: u64) {
        self.device_status = status;
        if status == 0 {
            self.stop_each();
            self.tell(State::Connected);
        }
    }
}
