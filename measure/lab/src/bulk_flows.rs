//! Bulk connections between two hosts, wherever these are: opened, ended, and waited for until
//! their last byte.

use crate::LabError;
use crate::host::{Host, ONLY_TO_CLIENT, Reading, Request, connecting};
use crate::interrupt::Interrupt;
use crate::load::Bulk;
use crate::report::Account;
use crate::topology::PORT;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use traffic::Family;

/// Connections that are not there by then never will be.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Longest that the end of a load is waited for. A connection that kept losing frames tries only
/// after many seconds more: what it holds until then is asked of the kernel and accounted for.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Ends<'h> {
    pub(crate) sender: &'h mut Host,
    pub(crate) receiver: &'h mut Host,
    /// The receiver's address on the way that is measured.
    pub(crate) to: IpAddr,
    /// The receiver's link on that way.
    pub(crate) link: &'h str,
}

/// Bulk connections of a bench, over one path after the other, and what all of them carried.
#[derive(Default)]
pub(crate) struct BulkFlows {
    /// The receiver before those that send now.
    before: Reading,
    sending: bool,
    account: Account,
    /// A host did not say what it had counted.
    unknown: bool,
}

impl BulkFlows {
    /// Opens all connections, which send from now on.
    pub(crate) fn begin(
        &mut self,
        pair: Ends<'_>,
        bulk: Bulk,
        interrupt: &Interrupt,
    ) -> Result<(), LabError> {
        let Ends { sender, receiver, to, link } = pair;
        self.sending = true;
        self.before = receiver.read(link)?;
        let at = SocketAddr::new(Family::of(to).unspecified(), PORT);
        receiver.order(&Request::Listen { at, bulk }, &bulk.command('r', at))?;
        let to = SocketAddr::new(to, PORT);
        let waited = CONNECT_PATIENCE + connecting(bulk.connections);
        let nobody =
            || LabError::NoTraffic { from: "the sender".into(), to: to.to_string(), waited };
        let sent = sender.order(&Request::Send { to, bulk }, &bulk.command('s', to));
        sent.map_err(|error| {
            error.where_refused(|why| match why.starts_with(ONLY_TO_CLIENT) {
                true => LabError::Between(why),
                false => nobody(),
            })
        })?;
        let all_there = || {
            let reading = receiver.read(link)?;
            let flows = reading.connections == bulk.connections && reading.received_bytes > 0;
            Ok(flows.then_some(()))
        };
        interrupt.wait_for(waited, all_there)?.ok_or_else(nobody)
    }

    /// Whether connections send.
    pub(crate) fn sends(&self) -> bool {
        self.sending
    }

    /// Ends what is sent; its last bytes may still be on their way.
    pub(crate) fn stop(&mut self, pair: Ends<'_>) -> Result<(), LabError> {
        if std::mem::take(&mut self.sending) { stop(pair.sender) } else { Ok(()) }
    }

    /// Ends what is sent, waits until all of it has arrived, and adds up what both ends counted and
    /// what `payload` says the frames had between two readings of the receiver.
    pub(crate) fn end(
        &mut self,
        pair: Ends<'_>,
        interrupt: &Interrupt,
        payload: impl FnOnce(&Reading, &Reading) -> u64,
    ) {
        if std::mem::take(&mut self.sending) {
            self.unknown |= self.drain(pair, interrupt, payload).is_err();
        }
    }

    fn drain(
        &mut self,
        Ends { sender, receiver, link, .. }: Ends<'_>,
        interrupt: &Interrupt,
        payload: impl FnOnce(&Reading, &Reading) -> u64,
    ) -> Result<(), LabError> {
        stop(sender)?;
        let arrived = || {
            let reading = receiver.read(link)?;
            Ok((reading.connections == 0).then_some(reading))
        };
        let after = match interrupt.wait_for(DRAIN_PATIENCE, arrived)? {
            Some(reading) => reading,
            None => receiver.read(link)?,
        };
        let sent = sender.read(link)?;
        let all = &mut self.account;
        all.undelivered_connections += after.connections;
        all.undelivered_bytes += sent.undelivered_bytes;
        all.sent_bytes += sent.given_bytes;
        all.received_bytes += after.received_bytes;
        all.interface_payload_bytes += payload(&self.before, &after);
        Ok(())
    }

    /// Notes what the switch gave to the toggled port meanwhile.
    pub(crate) fn crossed(&mut self, bytes: u64) {
        *self.account.port_bytes.get_or_insert(0) += bytes;
    }

    /// What was counted. `None` where a host did not say, and where nothing was carried.
    pub(crate) fn account(&self) -> Option<Account> {
        (!self.unknown && self.account != Account::default()).then_some(self.account)
    }
}

fn stop(sender: &mut Host) -> Result<(), LabError> {
    sender.order(&Request::StopSending, "(Ctrl-C)")
}
