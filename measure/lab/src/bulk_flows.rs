//! Bulk connections between two hosts: opens them, ends them, and waits until their last byte has
//! arrived.

use crate::LabError;
use crate::host::{Host, ONLY_TO_CLIENT, Reading, Request, connecting};
use crate::interrupt::Interrupt;
use crate::load::Bulk;
use crate::report::Account;
use crate::topology::PORT;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use traffic::Family;

/// Time within which connections must be established, beside what their number takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the last bytes of a load. A connection that kept losing frames retransmits only
/// after many more seconds: the bytes it still holds are read from the kernel and accounted for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The two hosts of a flow, and its route.
pub(crate) struct Endpoints<'h> {
    pub(crate) sender: &'h mut Host,
    pub(crate) receiver: &'h mut Host,
    /// The receiver's address on the route.
    pub(crate) to: IpAddr,
    /// The receiver's link on the route.
    pub(crate) link: &'h str,
}

/// Bulk connections of a bench over one route after the other, and the account of all of them.
#[derive(Default)]
pub(crate) struct BulkFlows {
    /// Reading of the receiver before the current connections began.
    before: Reading,
    sending: bool,
    account: Account,
    /// Whether a host did not report its counters.
    unknown: bool,
}

impl BulkFlows {
    /// Opens all connections, which then send until they are ended.
    pub(crate) fn begin(
        &mut self,
        endpoints: Endpoints<'_>,
        bulk: Bulk,
        interrupt: &Interrupt,
    ) -> Result<(), LabError> {
        let Endpoints { sender, receiver, to, link } = endpoints;
        self.sending = true;
        self.before = receiver.read(link)?;
        let at = SocketAddr::new(Family::of(to).unspecified(), PORT);
        receiver.order(&Request::Listen { at, bulk }, &bulk.command('r', at))?;
        let to = SocketAddr::new(to, PORT);
        let waited = CONNECT_TIMEOUT + connecting(bulk.connections);
        let unreached =
            || LabError::NoTraffic { from: "the sender".into(), to: to.to_string(), waited };
        let sent = sender.order(&Request::Send { to, bulk }, &bulk.command('s', to));
        sent.map_err(|error| {
            error.where_refused(|why| match why.starts_with(ONLY_TO_CLIENT) {
                true => LabError::ExistingHosts(why),
                false => unreached(),
            })
        })?;
        let all_there = || {
            let reading = receiver.read(link)?;
            let flows = reading.connections == bulk.connections && reading.received_bytes > 0;
            Ok(flows.then_some(()))
        };
        interrupt.wait_for(waited, all_there)?.ok_or_else(unreached)
    }

    /// Whether connections are sending.
    pub(crate) fn sends(&self) -> bool {
        self.sending
    }

    /// Stops sending; the last bytes may still be on their way.
    pub(crate) fn stop(&mut self, endpoints: Endpoints<'_>) -> Result<(), LabError> {
        if std::mem::take(&mut self.sending) { stop(endpoints.sender) } else { Ok(()) }
    }

    /// Stops sending, waits until all bytes have arrived, and adds to the account the counters of
    /// both ends and the payload that `payload` returns for two readings of the receiver.
    pub(crate) fn end(
        &mut self,
        endpoints: Endpoints<'_>,
        interrupt: &Interrupt,
        payload: impl FnOnce(&Reading, &Reading) -> u64,
    ) {
        if std::mem::take(&mut self.sending) {
            self.unknown |= self.drain(endpoints, interrupt, payload).is_err();
        }
    }

    fn drain(
        &mut self,
        Endpoints { sender, receiver, link, .. }: Endpoints<'_>,
        interrupt: &Interrupt,
        payload: impl FnOnce(&Reading, &Reading) -> u64,
    ) -> Result<(), LabError> {
        stop(sender)?;
        let arrived = || {
            let reading = receiver.read(link)?;
            Ok((reading.connections == 0).then_some(reading))
        };
        let after = match interrupt.wait_for(DRAIN_TIMEOUT, arrived)? {
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

    /// Adds bytes that the switch delivered to the toggled port.
    pub(crate) fn crossed(&mut self, bytes: u64) {
        *self.account.port_bytes.get_or_insert(0) += bytes;
    }

    /// Returns the account; `None` if a host did not report, or if nothing was carried.
    pub(crate) fn account(&self) -> Option<Account> {
        (!self.unknown && self.account != Account::default()).then_some(self.account)
    }
}

fn stop(sender: &mut Host) -> Result<(), LabError> {
    sender.order(&Request::StopSending, "(Ctrl-C)")
}
