//! What the switch is to be: the configuration, the origins of its ports, and the plan in work that
//! makes it so.
//!
//! While a plan is in work, the configuration is the wanted one already, and `pending` names the
//! ports of later steps.

use super::changes;
use super::origin::{Merged, Origins, merge};
use crate::settings;
use crate::state::{self, Added};
use api::body::Origin;
use config::plan::{self, Step, plan};
use config::{Config, PortConfig, PortName, PortRole, SwitchConfig};
use datapath::{PortId, PortSettings};
use problem::Problem;
use std::collections::BTreeSet;
use wire::Mac;

/// The wanted configuration.
pub(crate) struct Desired {
    config: Config,
    /// The origins of ports that are not from the file.
    added: Origins,
    /// The configuration at startup, without ports.
    started: Config,
    /// How often ports that are not from the file were changed.
    kept_changes: u64,
    /// The plan whose steps are being carried out.
    in_work: Option<InWork>,
}

/// The plan in work.
struct InWork {
    /// Ports that later steps close, change or open.
    pending: BTreeSet<String>,
    /// The origins of ports that the wanted configuration does not have. They are listed until
    /// their step.
    leaving: Origins,
}

impl Desired {
    /// Begins with the configuration at startup, without ports.
    pub(super) fn new(bare: Config) -> Desired {
        Desired {
            started: bare.clone(),
            config: bare,
            added: Origins::new(),
            kept_changes: 0,
            in_work: None,
        }
    }

    /// Returns the running configuration.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the configuration and the origins of its ports, to come back to.
    pub(super) fn snapshot(&self) -> (Config, Origins) {
        (self.config.clone(), self.added.clone())
    }

    /// Returns how often ports that are not from the file were changed. If this grows, the state on
    /// the disk is out of date.
    pub(crate) fn kept_changes(&self) -> u64 {
        self.kept_changes
    }

    /// Returns changed keys that take effect at the next start.
    pub(super) fn restart_needed(&self) -> Vec<String> {
        plan::restart_keys(&self.started, &self.config)
    }

    /// Returns a port's settings in the switch. `mtu` and `mac` are those of its device.
    pub(super) fn settings(
        &self,
        port: &PortConfig,
        mtu: u16,
        mac: Option<Mac>,
        mirror: Option<PortId>,
    ) -> PortSettings {
        // The table keeps its size from startup.
        let mac_entries = self.started.switch.mac_entries;
        let switch = SwitchConfig { mac_entries, ..self.config.switch.clone() };
        settings::of_port(port, &switch, mtu, mac, mirror)
    }

    /// Returns the steps to a wanted configuration.
    ///
    /// # Errors
    /// The configuration is refused.
    pub(crate) fn dry_run(&self, wanted: &Config) -> Result<Vec<Step>, Problem> {
        wanted.check()?;
        Ok(plan(&self.config, wanted))
    }

    /// Returns the steps to the file's configuration with the other ports.
    ///
    /// # Errors
    /// The configuration is refused.
    pub(crate) fn dry_run_file(&self, file: Config) -> Result<Vec<Step>, Problem> {
        file.check()?;
        self.dry_run(&merge(file, self.added_ports()).config)
    }

    /// Returns the steps to these ports of the fleet with the other ports.
    ///
    /// # Errors
    /// The configuration is refused.
    pub(crate) fn dry_run_fleet(&self, ports: Vec<PortConfig>) -> Result<Vec<Step>, Problem> {
        self.dry_run(&self.with_fleet(ports).config)
    }

    /// Takes a wanted configuration, and returns the steps that its ports need.
    ///
    /// # Errors
    /// The configuration is refused; then nothing has changed.
    pub(super) fn begin(&mut self, wanted: Config, added: Origins) -> Result<Vec<Step>, Problem> {
        debug_assert!(self.in_work.is_none(), "a second plan waits until the first has ended");
        let steps = self.dry_run(&wanted)?;
        changes::log(&self.config, &wanted, &steps);
        let kept = self.added_ports();
        self.config = wanted;
        let mut leaving = std::mem::replace(&mut self.added, added);
        let stay = self.config.by_name();
        leaving.retain(|name, _| !stay.contains_key(name.as_str()));
        self.kept_changes += u64::from(self.added_ports() != kept);
        let pending = steps.iter().filter_map(Step::port).map(str::to_owned).collect();
        self.in_work = Some(InWork { pending, leaving });
        Ok(steps)
    }

    /// Marks a step of the plan in work as taken.
    pub(super) fn taken(&mut self, step: &Step) {
        let comes_again = matches!(step, Step::Remove { reopens: true, .. });
        if let (Some(name), Some(in_work), false) = (step.port(), &mut self.in_work, comes_again) {
            in_work.pending.remove(name);
        }
    }

    /// Ends the plan in work.
    pub(super) fn end(&mut self) {
        self.in_work = None;
    }

    /// Whether a plan is in work, and has steps left.
    pub(super) fn is_in_work(&self) -> bool {
        self.in_work.is_some()
    }

    /// Whether a later step of the plan in work closes, changes or opens this port.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.in_work.as_ref().is_some_and(|in_work| in_work.pending.contains(name))
    }

    /// Whether a later step of the plan in work changes or opens an uplink.
    pub(super) fn uplink_is_pending(&self) -> bool {
        let mut uplinks = self.config.ports.iter().filter(|port| port.role() == PortRole::Uplink);
        self.is_in_work() && uplinks.any(|port| self.is_pending(port.name.as_str()))
    }

    /// Returns where a port comes from.
    pub(super) fn origin(&self, name: &PortName) -> Origin {
        let leaving = || self.in_work.as_ref()?.leaving.get(name);
        self.added.get(name).or_else(leaving).copied().unwrap_or_default()
    }

    /// Returns the ports of one origin, by name.
    fn ports_of(&self, origin: Origin) -> Vec<PortConfig> {
        let ports = self.config.ports.iter().filter(|port| self.origin(&port.name) == origin);
        let mut ports: Vec<PortConfig> = ports.cloned().collect();
        ports.sort_by(|one, other| one.name.cmp(&other.name));
        ports
    }

    /// Returns the ports that are not the file's.
    pub(super) fn added_ports(&self) -> Added {
        [Origin::Fleet, Origin::Api].into_iter().flat_map(|origin| self.tagged(origin)).collect()
    }

    fn tagged(&self, origin: Origin) -> impl Iterator<Item = (Origin, PortConfig)> + use<> {
        self.ports_of(origin).into_iter().map(move |port| (origin, port))
    }

    /// Returns the text of the state file.
    ///
    /// # Errors
    /// The ports cannot be serialised.
    pub(super) fn state_text(&self) -> Result<String, Problem> {
        state::to_text(&self.ports_of(Origin::Api), &self.ports_of(Origin::Fleet))
    }

    /// Merges these ports of the fleet with the file's and the API's.
    pub(super) fn with_fleet(&self, ports: Vec<PortConfig>) -> Merged {
        let fleet = ports.into_iter().map(|port| (Origin::Fleet, port));
        let added: Added = fleet.chain(self.tagged(Origin::Api)).collect();
        let file = Config { ports: self.ports_of(Origin::File), ..self.config.clone() };
        merge(file, added)
    }

    /// Returns the origins of the ports that the API wants: new ports belong to the API, others keep
    /// their origin.
    pub(super) fn origins_of(&self, wanted: &Config) -> Origins {
        let known = self.config.by_name();
        let origin = |port: &PortConfig| match self.added.get(&port.name) {
            Some(origin) => Some(*origin),
            None => (!known.contains_key(port.name.as_str())).then_some(Origin::Api),
        };
        let names = wanted.ports.iter();
        names.filter_map(|port| Some((port.name.clone(), origin(port)?))).collect()
    }
}
