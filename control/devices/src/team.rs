//! Opening a team. Its members are packet ports.

use crate::contract::{Condition, DeviceState, OpenError, Opened, Watch};
use crate::link::link_denied;
use crate::packet::packet_denied;
use config::{PortConfig, TeamAlgorithm};
use ports::link::Link;
use ports::team::{self, Algorithm, Member, MemberError, Team, TeamError, TeamOptions};
use problem::Problem;
use std::time::Duration;

/// Opens all members of the port's team that can be opened.
pub(crate) fn open(port: &PortConfig) -> Result<Opened, OpenError> {
    let options = TeamOptions {
        members: port.members(),
        netns: port.netns_path(),
        algorithm: team_algorithm(port),
        fail_back: team_fail_back(port),
    };
    let path = options.netns.clone();
    let namespace = path.as_deref().map(|path| Link::open("lo", Some(path))).transpose();
    let namespace = namespace
        .map_err(|error| OpenError { denied: link_denied(&error), reason: error.to_string() })?;
    let opener = move |name: &str| {
        Member::packet(name, path.as_deref()).map_err(|error| MemberError {
            denied: packet_denied(&error),
            reason: error.to_string(),
        })
    };
    let (device, team) = team::open(&options, Box::new(opener)).map_err(|error| OpenError {
        denied: matches!(error, TeamError::NoMember { denied: true, .. }),
        reason: error.to_string(),
    })?;
    let members = team.status().members;
    let degraded = members.iter().flat_map(|member| member.degraded.iter().cloned()).collect();
    Ok(Opened {
        device,
        degraded,
        watch: Box::new(HostTeam { team, namespace }),
        earlier_mac: None,
    })
}

/// Returns how a team spreads its frames, configured or by default.
pub fn team_algorithm(port: &PortConfig) -> Algorithm {
    match port.team_algorithm.unwrap_or_default() {
        TeamAlgorithm::HyperVPort => Algorithm::HyperVPort,
        TeamAlgorithm::Dynamic => Algorithm::Dynamic,
    }
}

/// Returns how long a recovered member's link must stay up, configured or by default.
pub fn team_fail_back(port: &PortConfig) -> Duration {
    Duration::from_secs(port.team_fail_back.map_or(1, |seconds| seconds.0.into()))
}

/// An open team.
struct HostTeam {
    team: Team,
    /// A link of its namespace, if that is another one than the process's.
    namespace: Option<Link>,
}

impl Watch for HostTeam {
    fn state(&self) -> DeviceState {
        let condition = match self.namespace.as_ref().and_then(Link::namespace_fault) {
            Some(fault) => Condition::Failed(fault),
            None => self.team.trouble().map_or(Condition::Up, Condition::Down),
        };
        DeviceState { condition, mtu: self.team.mtu(), connections: 0, connected: false }
    }

    fn links(&self) -> Vec<(String, u16)> {
        self.team.mtus()
    }

    fn team(&self) -> Option<&Team> {
        Some(&self.team)
    }

    fn suspend(&self) {
        self.team.end();
    }

    /// Does nothing: the host sets the MTU of its own devices.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}
