//! The commands. Each may be repeated, and each handles what a crashed command left behind.

mod check;

use crate::attachment::Attachment;
use crate::error::CniError;
use crate::ipam::Ipam;
use crate::network::Network;
use crate::outcome::{Interface, Outcome};
use crate::pod::Pod;
use crate::request::{Command, Request};
use crate::switch::Switch;
use config::{HostName, MacAddress, Namespace, PortConfig, from_value};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Carries out a command. Returns the JSON to print, if it prints anything.
pub(crate) fn run(
    request: &Request,
    network: &Network,
    socket: &Path,
) -> Result<Option<Value>, CniError> {
    let socket = network.socket.as_deref().unwrap_or(socket);
    let work = Work { request, network, socket };
    match request.command {
        Command::Add => work.add().map(|outcome| Some(outcome.to_json(network.version))),
        Command::Del => work.del().map(|()| None),
        Command::Check => work.check().map(|()| None),
        Command::Status => work.status().map(|()| None),
        Command::Gc => work.collect_garbage().map(|()| None),
        Command::Version => Ok(None),
    }
}

/// The context of a command.
struct Work<'a> {
    request: &'a Request,
    network: &'a Network,
    socket: &'a Path,
}

impl Work<'_> {
    /// Attaches the interface. It makes the port first, so that DEL and GC find it from then on. A
    /// port that is left of a namespace which is gone is removed before.
    fn add(&self) -> Result<Outcome, CniError> {
        let (at, netns) = (self.attachment()?, self.netns()?);
        let config = self.port_config(&at, netns)?;
        let ipam = Ipam::find(self.request, self.network)?;
        let switch = Switch::connect(self.socket)?;
        let pod = Pod { netns, interface: at.interface() };
        if pod.has_interface()? {
            return Err(exists(&pod));
        }
        if let Some(port) = switch.port(&at.port_name())? {
            refuse_live(&port.config, at.interface())?;
            clear(&switch, &at, ipam.as_ref())?;
        }
        if self.network.mac.is_some()
            && let Some(owner) = switch.sender_from(&config)?
        {
            let message = format!("the address in runtimeConfig.mac is in use on port {owner}");
            let told = "choose another; an address is free after 300 s of silence";
            return Err(CniError::new(CniError::NETWORK, message, told));
        }
        switch.add(&config)?;
        let mac = config.mac.unwrap_or(at.mac());
        match self.attach(&pod, mac, ipam.as_ref()) {
            Ok(outcome) => Ok(outcome.after(self.network.previous.clone())),
            Err(error) => Err(match clear(&switch, &at, ipam.as_ref()) {
                Ok(()) => error,
                Err(other) => error.and(&other),
            }),
        }
    }

    /// Detaches the interface. It is no error if the port does not exist. A missing IPAM plugin is
    /// an error, but the port is removed nevertheless.
    fn del(&self) -> Result<(), CniError> {
        let (switch, at) = (Switch::connect(self.socket)?, self.attachment()?);
        match Ipam::find(self.request, self.network) {
            Ok(ipam) => clear(&switch, &at, ipam.as_ref()),
            Err(error) => clear(&switch, &at, None).and(Err(error)),
        }
    }

    /// Checks that ADD can be served. A daemon that does not answer does not serve existing pods
    /// either, which the error's number says.
    fn status(&self) -> Result<(), CniError> {
        let unavailable = |error: CniError| CniError { code: CniError::UNAVAILABLE, ..error };
        Switch::connect(self.socket)
            .and_then(|switch| switch.ports_of(&self.network.name))
            .map_err(unavailable)?;
        match Ipam::find(self.request, self.network)? {
            Some(ipam) => ipam.tell(Command::Status.name()),
            None => Ok(()),
        }
    }

    /// Makes the IPAM plugin forget what is not listed, and removes all ports of the network that
    /// are not listed. Continues after an error.
    fn collect_garbage(&self) -> Result<(), CniError> {
        let Some(valid) = &self.network.valid else {
            let told = "without the list GC would remove every port";
            let message = "cni.dev/valid-attachments is missing";
            return Err(CniError::new(CniError::NETWORK, message, told));
        };
        let valid: Vec<_> = valid.iter().map(Attachment::port_name).collect();
        let told = Ipam::find(self.request, self.network)
            .and_then(|ipam| ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Gc.name())));
        let mut errors: Vec<_> = told.err().into_iter().collect();
        let found = Switch::connect(self.socket)
            .and_then(|switch| Ok((switch.ports_of(&self.network.name)?, switch)));
        match found {
            Ok((names, switch)) => {
                let stale = names.iter().filter(|name| !valid.contains(name));
                errors.extend(stale.filter_map(|name| switch.remove(name).err()));
            }
            Err(error) => errors.push(error),
        }
        let all = errors.into_iter().reduce(|first, other| first.and(&other));
        all.map_or(Ok(()), Err)
    }

    /// Brings the interface up, gets addresses from the IPAM plugin, and sets and announces them.
    /// The interface is up before the IPAM plugin runs, which may need it to ask a server.
    fn attach(
        &self,
        pod: &Pod<'_>,
        mac: MacAddress,
        ipam: Option<&Ipam<'_>>,
    ) -> Result<Outcome, CniError> {
        let mtu = pod.set_up(mac)?;
        let mut outcome = ipam.map_or_else(|| Ok(Outcome::default()), Ipam::add)?;
        pod.configure(&mut outcome)?;
        pod.announce(mac, &outcome);
        outcome.interfaces = vec![Interface {
            name: pod.interface.to_string(),
            mac: Some(mac.0.to_string()),
            mtu: Some(mtu),
            sandbox: Some(pod.netns.to_string()),
            more: Map::new(),
        }];
        outcome.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        if !self.network.dns.is_empty() {
            outcome.dns = self.network.dns.clone();
        }
        Ok(outcome)
    }

    fn attachment(&self) -> Result<Attachment, CniError> {
        let place = self.request.place.as_ref().ok_or_else(|| missing("CNI_CONTAINERID"))?;
        Ok(Attachment::new(&self.network.name, &place.container, place.interface.clone()))
    }

    fn netns(&self) -> Result<&Namespace, CniError> {
        let netns = self.request.place.as_ref().and_then(|place| place.netns.as_ref());
        netns.ok_or_else(|| missing("CNI_NETNS"))
    }

    /// Returns the port's configuration: the network's keys and this pod's own.
    fn port_config(&self, at: &Attachment, netns: &Namespace) -> Result<PortConfig, CniError> {
        let mac = self.network.mac.unwrap_or(at.mac());
        let mut keys: Map<String, Value> = self.network.port.clone();
        let device = self.network.device.key();
        let own =
            json!({"name": at.port_name(), device: at.interface(), "netns": netns, "mac": mac});
        keys.extend(own.as_object().cloned().unwrap_or_default());
        from_value(Value::Object(keys))
            .map_err(|problem| CniError::of(CniError::NETWORK, &problem.at("port")))
    }
}

fn missing(name: &str) -> CniError {
    CniError::new(CniError::ENVIRONMENT, format!("{name} is not set"), "the runtime sets it")
}

/// Refuses to replace a port whose interface exists in the namespace that the port was made for,
/// which may be another than that of the request. A namespace that cannot be entered is gone.
fn refuse_live(port: &PortConfig, interface: &HostName) -> Result<(), CniError> {
    let Some(netns) = &port.netns else { return Ok(()) };
    let pod = Pod { netns, interface };
    if pod.has_interface().unwrap_or(false) { Err(exists(&pod)) } else { Ok(()) }
}

/// Returns the error of an ADD for an interface that exists, ours or not.
fn exists(pod: &Pod<'_>) -> CniError {
    let message = format!("CNI_IFNAME: interface {} exists in {}", pod.interface, pod.netns);
    let told = "ADD changes no interface that exists: DEL first, or choose another name";
    CniError::new(CniError::ENVIRONMENT, message, told)
}

/// Undoes ADD in reverse: releases the addresses while the interface is still there, as the IPAM
/// plugin may tell a server, then removes the port with its device. Does each even if the other
/// fails.
fn clear(switch: &Switch, at: &Attachment, ipam: Option<&Ipam<'_>>) -> Result<(), CniError> {
    let released = ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Del.name()));
    match (switch.remove(&at.port_name()), released) {
        (Err(error), Err(other)) => Err(error.and(&other)),
        (removed, released) => removed.and(released),
    }
}
