//! Tells the guest, over its front end's [channel](crate::back_channel), that the configuration space
//! has changed.

use super::{Backend, refused};
use crate::Features;
use crate::back_channel::BackChannel;
use crate::config_space::Link;
use std::os::fd::OwnedFd;
use vhost::vhost_user::Result;
use vhost::vhost_user::message::VhostUserProtocolFeatures;

impl Backend {
    /// Takes the front end's channel, in place of an earlier one.
    pub(super) fn set_channel(&mut self, socket: Option<OwnedFd>) -> Result<()> {
        let Some(socket) = socket else {
            return Err(refused("SET_BACKEND_REQ_FD came without a socket: it needs one"));
        };
        self.channel = Some(BackChannel::new(socket).map_err(refused)?);
        self.note_channel();
        // The driver may have read the space before there was a channel.
        if self.shared.plug.is_down() {
            self.tell_change();
        }
        Ok(())
    }

    /// Whether the guest hears of changes: not if its front end has a configuration space of its own.
    pub(super) fn tells_changes(&self) -> bool {
        self.channel.is_some() && self.protocol.contains(VhostUserProtocolFeatures::CONFIG)
    }

    /// Notes whether the front end has to be cut off for a link that is down.
    pub(super) fn note_channel(&self) {
        let is_told = self.tells_changes() && self.taken.contains(Features::STATUS);
        self.shared.plug.note_channel(is_told);
    }

    /// Returns the fields of the configuration space that change while the guest runs. A link that
    /// is down is not shown to a guest that would not hear when it is up again.
    pub(super) fn link(&self) -> Link {
        let is_down = self.shared.plug.is_down() && self.tells_changes();
        Link { is_up: !is_down, speed: self.shared.speed() }
    }

    /// Has the guest's driver read the configuration space anew, if its front end takes that, and
    /// cuts off one that does not if its link is down.
    pub(crate) fn tell_change(&mut self) {
        let told = self.channel.as_ref().filter(|_| self.tells_changes());
        if let Some(Err(error)) = told.map(BackChannel::tell_change) {
            // The session goes on as one that never had a channel.
            let socket = self.shared.options.socket.display();
            tracing::debug!(%socket, "its guest hears of no change of its configuration: {error}");
            self.channel = None;
            self.note_channel();
        }
        self.shared.unplug();
    }
}
