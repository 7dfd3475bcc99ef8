//! The ports of the running configuration by name, and what opens their devices.
//!
//! Ports that could not be opened are among them, with the reason.

use super::parallel_open::{Place, devices};
use super::port::{OpenPort, PortDevice, RunningPort};
use ::ports::team::Team;
use config::{Config, MacAddress, PortConfig, PortName, Scale, nearest};
use datapath::{PortId, PortInfo, Switch};
use devices::store::Store;
use devices::{OpenError, Opened, Opener};
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for all sessions together to reach a message boundary: a front end may have sent
/// half a message.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(200);

/// Names of ports that a message lists.
const LISTED: usize = 8;

/// All ports by name.
pub(crate) struct Ports {
    opener: Arc<dyn Opener>,
    /// What ports without `queues` go by.
    scale: Scale,
    /// Opened devices whose ports are added next.
    ahead: BTreeMap<PortName, Result<Opened, OpenError>>,
    /// Devices that other threads are opening, the last ones last.
    opening: Vec<BTreeSet<Place>>,
    by_name: BTreeMap<PortName, RunningPort>,
    /// By port name, if the port was reopened with another MTU: the MTU with which its guest was
    /// started.
    guest_mtus: BTreeMap<String, u16>,
}

impl Ports {
    /// Creates the list, without ports.
    pub(super) fn new(opener: Box<dyn Opener>, scale: Scale) -> Ports {
        let (ahead, opening, by_name, guest_mtus) = Default::default();
        Ports { opener: opener.into(), scale, ahead, opening, by_name, guest_mtus }
    }

    /// Removes what was made for the device of a closed port.
    ///
    /// # Errors
    /// The kernel does not remove it.
    pub(super) fn remove_device(&self, port: &PortConfig) -> Result<(), Problem> {
        self.opener.remove(port)
    }

    /// Returns how many ports there are.
    pub(super) fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Returns all ports, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PortName, &RunningPort)> {
        self.by_name.iter()
    }

    /// Returns the ports that are open, by name.
    pub(super) fn open(&self) -> impl Iterator<Item = (&PortName, &OpenPort)> {
        self.iter().filter_map(|(name, port)| Some((name, port.open()?)))
    }

    /// Returns the ports that are open, by name, to change them.
    pub(super) fn open_mut(&mut self) -> impl Iterator<Item = (&PortName, &mut OpenPort)> {
        self.by_name.iter_mut().filter_map(|(name, port)| Some((name, port.open_mut()?)))
    }

    /// Returns a port of the configuration.
    pub(super) fn get(&self, name: &PortName) -> Option<&RunningPort> {
        self.by_name.get(name)
    }

    /// Returns a port of the configuration, to change it.
    pub(super) fn get_mut(&mut self, name: &PortName) -> Option<&mut RunningPort> {
        self.by_name.get_mut(name)
    }

    /// Finds a port by its name as typed.
    pub(super) fn find(&self, name: &str) -> Option<(&PortName, &RunningPort)> {
        self.by_name.get_key_value(name)
    }

    /// Returns a port by its name as typed.
    ///
    /// # Errors
    /// There is no such port.
    pub(super) fn port(&self, name: &str) -> Result<(&PortName, &RunningPort), Problem> {
        self.find(name).ok_or_else(|| self.no_such(name))
    }

    /// Returns a port whose device is open.
    ///
    /// # Errors
    /// There is no such port, or it is not open.
    pub(super) fn open_port(&self, name: &str) -> Result<&OpenPort, Problem> {
        let (_, port) = self.port(name)?;
        match &port.device {
            PortDevice::Open(open) => Ok(open),
            PortDevice::Closed { reason, .. } => {
                Err(Problem::new(format!("port {name} is not open"))
                    .seen(reason)
                    .wanted("an open port")
                    .remedy(format!("wait: opening is retried every second; `millrace port show {name}` shows the reason")))
            }
        }
    }

    /// Finds the port of a name as typed in a wanted configuration.
    ///
    /// # Errors
    /// There is no such port.
    pub(super) fn wanted<'c>(
        &self,
        config: &'c mut Config,
        name: &str,
    ) -> Result<&'c mut PortConfig, Problem> {
        let found = config.ports.iter_mut().find(|port| port.name.as_str() == name);
        found.ok_or_else(|| self.no_such(name))
    }

    /// Returns the problem of a name that no port has.
    pub(super) fn no_such(&self, name: &str) -> Problem {
        let names: Vec<&str> = self.by_name.keys().map(PortName::as_str).collect();
        let remedy = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`millrace port list` shows all ports".to_owned(),
        };
        let wanted = match names.get(..LISTED) {
            _ if names.is_empty() => "there are no ports yet".to_owned(),
            Some(first) if names.len() > LISTED => {
                format!("one of {} ports: {}, …", names.len(), first.join(", "))
            }
            _ => names.join(", "),
        };
        Problem::new(format!("there is no port {name}")).seen(name).wanted(wanted).remedy(remedy)
    }

    /// Returns the name of a port in the switch.
    pub(super) fn name_of(&self, id: PortId) -> String {
        let named = self.open().find(|(_, open)| open.id == id);
        named.map_or_else(|| format!("number {}", id.0), |(name, _)| name.to_string())
    }

    /// Returns the ports that are not open, each with its reason.
    pub(crate) fn closed(&self) -> Vec<(String, String)> {
        let closed = self
            .iter()
            .filter_map(|(name, port)| Some((name.to_string(), port.closed()?.to_owned())));
        closed.collect()
    }

    /// Returns the problem if no port could be opened for lack of a privilege.
    pub(crate) fn denied(&self) -> Option<Problem> {
        let mut reasons = self.by_name.values().map(|port| match &port.device {
            PortDevice::Closed { reason, denied: true } => Some(reason),
            _ => None,
        });
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then(|| {
            Problem::new("no port could be opened: this process lacks a privilege")
                .seen(first)
                .wanted("CAP_NET_ADMIN, and CAP_NET_RAW for packet ports")
                .remedy(
                    "run as root or as the systemd unit, or run `setcap cap_net_admin,cap_net_raw+ep` on the binary",
                )
        })
    }

    /// Returns the open teams.
    pub(super) fn teams(&self) -> impl Iterator<Item = &Team> {
        self.by_name.values().filter_map(RunningPort::team)
    }

    /// Returns the member that a vNIC is pinned to, and why it carries no frames; `None` if it
    /// carries them.
    pub(super) fn path_down(&self, vnic: &PortConfig) -> Option<(String, String)> {
        let pinned = vnic.team_member.as_ref()?;
        let reason = self.teams().find_map(|team| team.lost(pinned.as_str()))?;
        Some((pinned.to_string(), reason))
    }

    /// Returns the port in the switch to which this one mirrors, if that is open.
    pub(super) fn mirror_of(&self, port: &PortConfig) -> Option<PortId> {
        Some(self.get(port.mirror_to.as_ref()?)?.open()?.id)
    }

    /// Returns what opens the devices of ports that are added next, without waiting for this list,
    /// which gets them by [`Ports::keep_ahead`].
    pub(super) fn open_ahead(
        &mut self,
        ports: &[&PortConfig],
    ) -> impl Fn(&PortConfig) -> Result<Opened, OpenError> + Sync + use<> {
        self.opening.push(ports.iter().flat_map(|port| devices(port)).collect());
        let (opener, scale) = (Arc::clone(&self.opener), self.scale);
        move |port| opener.open(port, scale)
    }

    /// Keeps what was opened last.
    pub(super) fn keep_ahead(
        &mut self,
        ports: &[&PortConfig],
        opened: Vec<Result<Opened, OpenError>>,
    ) {
        self.opening.pop();
        self.ahead.extend(ports.iter().map(|port| port.name.clone()).zip(opened));
    }

    /// Returns whether another thread is opening a device of this port: opened at the same time, each
    /// would remove the other's socket as a stale one.
    pub(super) fn is_opening(&self, port: &PortConfig) -> bool {
        !self.opening.is_empty()
            && devices(port)
                .iter()
                .any(|device| self.opening.iter().any(|all| all.contains(device)))
    }

    /// Opens the device of a port, unless it was opened ahead.
    ///
    /// # Errors
    /// The device could not be opened.
    pub(super) fn open_device(&mut self, port: &PortConfig) -> Result<Opened, OpenError> {
        let ahead = self.ahead.remove(&port.name);
        ahead.unwrap_or_else(|| self.opener.open(port, self.scale))
    }

    /// Returns what outlives this process.
    pub(super) fn store(&self) -> Store {
        self.opener.store()
    }

    /// Adds a port, or replaces the one of its name.
    pub(super) fn put(&mut self, port: RunningPort) {
        self.by_name.insert(port.config.name.clone(), port);
    }

    /// Removes a port.
    pub(super) fn remove(&mut self, name: &str) -> Option<RunningPort> {
        self.by_name.remove(name)
    }

    /// Remembers the MTU of a guest whose port closes. Its driver reads the MTU when it starts, not
    /// when its port is reopened.
    pub(super) fn remember_guest_mtu(&mut self, name: &str, changed: &[String]) {
        let port = self.find(name).map(|(_, port)| port);
        let open = port.and_then(|port| port.open().filter(|_| port.config.device().is_guest()));
        match open.filter(|open| open.watch.state().connections > 0) {
            Some(open) if changed.iter().any(|key| key == "mtu") => {
                let mtu = open.settings.mtu;
                self.guest_mtus.entry(name.to_owned()).or_insert(mtu);
            }
            Some(_) if !changed.is_empty() => {}
            _ => self.forget_guest_mtu(name),
        }
    }

    /// Forgets the MTU of a guest that is gone.
    pub(super) fn forget_guest_mtu(&mut self, name: &str) {
        self.guest_mtus.remove(name);
    }

    /// Returns the MTU with which a port's guest was started, if the port has another one.
    pub(super) fn guest_mtu(&self, name: &PortName) -> Option<u16> {
        self.guest_mtus.get(name.as_str()).copied()
    }

    /// Takes the counters of all ports.
    pub(super) fn sample(&mut self, switch: &Switch, now: Instant) {
        for (_, open) in self.open_mut() {
            if let Some(counters) = switch.counters(open.id) {
                open.last = open.last.next(now, counters, switch.queues_of(open.id));
            }
        }
    }

    /// Returns the addresses that ports without a configured one are held to.
    pub(super) fn addresses_to_keep(&self, infos: &[PortInfo]) -> BTreeMap<String, MacAddress> {
        let of = |(name, port): (&PortName, &RunningPort)| {
            let info = port.info_in(infos);
            let mac = port.first_mac.or(info.and_then(|info| info.held_mac))?;
            Some((name.to_string(), MacAddress(mac)))
        };
        self.iter().filter_map(of).collect()
    }

    /// Closes all ports.
    pub(super) fn clear(&mut self) {
        self.by_name.clear();
    }

    /// Leaves the devices to another process, which resumes with them.
    pub(super) fn hand_over(&mut self, infos: &[PortInfo]) {
        self.store().note_addresses(self.addresses_to_keep(infos));
        self.open().for_each(|(_, open)| open.watch.suspend());
        let until = Instant::now() + HAND_OVER_TIMEOUT;
        self.open_mut().for_each(|(_, open)| open.watch.hand_over(until));
        self.by_name.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_devices::MemoryDevices;

    /// The poll runs while the devices of a step open, and opens broken ports again.
    #[test]
    fn a_device_that_a_step_opens_is_known_until_it_is_kept() {
        let mut ports = Ports::new(Box::<MemoryDevices>::default(), Scale::ONE);
        let port = |name: &str, tap: &str| PortConfig {
            tap: Some(tap.parse().unwrap()),
            ..PortConfig::named(name.parse().unwrap())
        };
        let (a, same, other) = (port("a", "t0"), port("b", "t0"), port("c", "t1"));
        assert!(!ports.is_opening(&same));
        let opened = {
            let open = ports.open_ahead(&[&a]);
            assert!(ports.is_opening(&same) && !ports.is_opening(&other));
            let _ = ports.open_ahead(&[&other]);
            ports.keep_ahead(&[&other], Vec::new());
            assert!(ports.is_opening(&same) && !ports.is_opening(&other));
            vec![open(&a)]
        };
        ports.keep_ahead(&[&a], opened);
        assert!(!ports.is_opening(&same) && ports.open_device(&a).is_ok());
    }
}
