//! The daemon's API as the plugin uses it: adds, finds and removes ports.

use crate::attachment::beginning;
use crate::error::CniError;
use api::body::{MacBody, PortBody};
use api::client::Client;
use config::PortConfig;
use std::path::Path;

/// A client of a daemon that answers.
pub(crate) struct Switch(Client);

impl Switch {
    /// Connects to the daemon at its socket.
    pub(crate) fn connect(socket: &Path) -> Result<Switch, CniError> {
        Ok(Switch(Client::connect(socket)?))
    }

    /// Returns the port of this name, if there is one.
    pub(crate) fn port(&self, name: &str) -> Result<Option<PortBody>, CniError> {
        Ok(self.0.ports()?.into_iter().find(|port| port.name == name))
    }

    /// Returns the names of all ports of a network.
    pub(crate) fn ports_of(&self, network: &str) -> Result<Vec<String>, CniError> {
        let beginning = beginning(network);
        let names = self.0.ports()?.into_iter().map(|port| port.name);
        Ok(names.filter(|name| name.starts_with(&beginning)).collect())
    }

    /// Returns the port at which another station sends from the MAC address of `port` in the same
    /// VLAN, if there is one.
    pub(crate) fn sender_from(&self, port: &PortConfig) -> Result<Option<String>, CniError> {
        let Some(mac) = port.mac.map(|mac| mac.0.to_string()) else { return Ok(None) };
        let same = |entry: &MacBody| entry.mac == mac && port.carries_vlan(entry.vlan);
        Ok(self.0.macs()?.into_iter().find(same).map(|entry| entry.port))
    }

    /// Opens a port.
    pub(crate) fn add(&self, port: &PortConfig) -> Result<(), CniError> {
        self.0.add_port(port)?;
        Ok(())
    }

    /// Removes a port. It is no error if the port does not exist, or another process removes it at
    /// the same time.
    pub(crate) fn remove(&self, name: &str) -> Result<(), CniError> {
        if self.port(name)?.is_none() {
            return Ok(());
        }
        match self.0.remove_port(name) {
            Err(error) if self.port(name)?.is_some() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
