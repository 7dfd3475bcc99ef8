//! Bulk connections between two hosts, wherever these are: opened, ended, and waited for until their last byte.

use crate::LabError;
use crate::experiments::Bulk;
use crate::host::{Host, Reading, Request, connecting};
use crate::interrupt::Interrupt;
use crate::report::Account;
use crate::topology::PORT;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Connections that are not there by then never will be.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Longest that the end of a load is waited for. A connection that kept losing frames tries only after many
/// seconds more: what it holds until then is asked of the kernel and accounted for.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Pair<'h> {
    pub(crate) sender: &'h mut Host,
    pub(crate) receiver: &'h mut Host,
    /// The receiver's address on the way that is measured.
    pub(crate) to: IpAddr,
    /// The receiver's link on that way.
    pub(crate) link: &'h str,
}

impl Pair<'_> {
    /// Opens all connections, which send from now on. The receiver's counters before.
    pub(crate) fn connect(
        &mut self,
        bulk: Bulk,
        interrupt: &Interrupt,
    ) -> Result<Reading, LabError> {
        let to = SocketAddr::new(self.to, PORT);
        let before = self.receiver.read(self.link)?;
        let at = SocketAddr::new(all_of_family(self.to), PORT);
        self.receiver.order(&Request::Listen { at, bulk }, &bulk.command('r', at))?;
        let patience = CONNECT_PATIENCE + connecting(bulk.connections);
        let nobody = || LabError::NoTraffic {
            from: "the sender".into(),
            to: to.to_string(),
            waited: patience,
        };
        let sent = self.sender.order(&Request::Send { to, bulk }, &bulk.command('s', to));
        sent.map_err(|error| match error {
            LabError::Refused { .. } => nobody(),
            other => other,
        })?;
        let all_there = || {
            let reading = self.receiver.read(self.link)?;
            Ok((reading.connections == bulk.connections && reading.received_bytes > 0)
                .then_some(()))
        };
        interrupt.wait_for(patience, all_there)?.ok_or_else(nobody)?;
        Ok(before)
    }

    /// Ends what is sent; its last bytes may still be on their way.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        self.sender.order(&Request::StopSending, "(Ctrl-C)")
    }

    /// Waits until all that was sent has arrived. The sender's and the receiver's counters then; `None` where nobody
    /// answers.
    pub(crate) fn drain(&mut self, interrupt: &Interrupt) -> Option<(Reading, Reading)> {
        let arrived = || {
            let reading = self.receiver.read(self.link)?;
            Ok((reading.connections == 0).then_some(reading))
        };
        let received = match interrupt.wait_for(DRAIN_PATIENCE, arrived).ok()? {
            Some(reading) => reading,
            None => self.receiver.read(self.link).ok()?,
        };
        Some((self.sender.read(self.link).ok()?, received))
    }
}

/// Bulk connections of a bench, over one path after the other, and what all of them carried.
#[derive(Default)]
pub(crate) struct Carried {
    /// The receiver before those that send now.
    before: Reading,
    sending: bool,
    account: Account,
    /// A host did not say what it had counted.
    unknown: bool,
}

impl Carried {
    /// Opens connections, which send from now on.
    pub(crate) fn begin(
        &mut self,
        mut pair: Pair<'_>,
        bulk: Bulk,
        interrupt: &Interrupt,
    ) -> Result<(), LabError> {
        self.sending = true;
        self.before = pair.connect(bulk, interrupt)?;
        Ok(())
    }

    /// Whether connections send.
    pub(crate) fn sends(&self) -> bool {
        self.sending
    }

    /// Ends what is sent, whatever is still on its way.
    pub(crate) fn stop(&mut self, mut pair: Pair<'_>) -> Result<(), LabError> {
        if std::mem::take(&mut self.sending) { pair.stop() } else { Ok(()) }
    }

    /// Ends what is sent, waits until all of it has arrived, and adds up what both ends counted and what `payload` says
    /// the frames had between two readings of the receiver.
    pub(crate) fn end(
        &mut self,
        mut pair: Pair<'_>,
        interrupt: &Interrupt,
        payload: impl FnOnce(&Reading, &Reading) -> u64,
    ) {
        if !std::mem::take(&mut self.sending) {
            return;
        }
        let Some((sent, after)) = pair.stop().ok().and_then(|()| pair.drain(interrupt)) else {
            self.unknown = true;
            return;
        };
        let all = &mut self.account;
        all.undelivered_connections += after.connections;
        all.undelivered_bytes += sent.undelivered_bytes;
        all.sent_bytes += sent.given_bytes;
        all.received_bytes += after.received_bytes;
        all.interface_payload_bytes += payload(&self.before, &after);
    }

    /// What was counted. `None` where a host did not say, and where nothing was carried.
    pub(crate) fn account(&self) -> Option<Account> {
        (!self.unknown && self.account != Account::default()).then_some(self.account)
    }
}

fn all_of_family(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
