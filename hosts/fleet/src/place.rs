//! Where a port of the fleet is: by its name or address, in the revision that the host has or is to
//! have.

use crate::Name;
use crate::configuration::carrier;
use crate::model::{Model, Port};
use crate::store::{Claims, Store};
use config::{MacAddress, PortName, nearest};
use problem::Problem;
use serde::Serialize;

/// A port, and the host that carries it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The port.
    pub port: PortName,
    /// Its address.
    pub mac: MacAddress,
    /// Its network.
    pub network: Name,
    /// The host that carries it; `None` if no host has claimed its address.
    pub host: Option<Name>,
    /// Whether the model names the host. Otherwise the host has claimed the port's address.
    pub named_by_model: bool,
}

/// Returns where the port of this name or address is.
///
/// # Errors
/// Fails if etcd does not answer, no revision was applied, or no port of the newest one has the
/// name or address.
pub fn place(store: &Store, wanted: &str) -> Result<Place, Problem> {
    let state = store.wanted()?;
    let desired = state.desired.document.ok_or_else(|| {
        Problem::new("no revision was applied yet")
            .wanted("a fleet with ports")
            .remedy("`millrace fleet apply -f DIRECTORY` applies one")
    })?;
    let model = store.revision(desired.revision)?.model;
    find(&model, &state.claims, wanted).ok_or_else(|| unknown(&model, desired.revision, wanted))
}

fn find(model: &Model, claims: &Claims, wanted: &str) -> Option<Place> {
    let mac = wanted.parse::<MacAddress>().ok();
    let is_meant = |port: &&Port| port.name.as_str() == wanted || Some(port.mac) == mac;
    let port = model.ports.iter().find(is_meant)?;
    let claimed = claims.claimed([model]);
    Some(Place {
        port: port.name.clone(),
        mac: port.mac,
        network: port.network.clone(),
        host: carrier(port, &claimed).cloned(),
        named_by_model: port.host.is_some(),
    })
}

fn unknown(model: &Model, revision: u64, wanted: &str) -> Problem {
    let names: Vec<&str> = model.ports.iter().map(|port| port.name.as_str()).collect();
    let remedy = match nearest(wanted, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            "a port that was added on a host itself is only in `millrace port list` there".into()
        }
    };
    Problem::new(format!("revision {revision} has no port {wanted}"))
        .seen(wanted)
        .wanted("the name or the address of a port of the fleet")
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "\
version = 1

[[network]]
name = 'blue'

[[port]]
name = 'vm1'
network = 'blue'
mac = '52:54:00:00:00:01'
host = 'a'
tap = 'vm1'

[[port]]
name = 'vm2'
network = 'blue'
mac = '52:54:00:00:00:02'
tap = 'vm2'
";

    #[test]
    fn a_port_is_found_by_its_name_and_by_its_address() {
        let model = Model::from_toml("t", MODEL).unwrap();
        let find = |wanted| find(&model, &Claims::default(), wanted);
        let vm1 = find("vm1").unwrap();
        assert_eq!((vm1.host.as_ref().map(Name::as_str), vm1.named_by_model), (Some("a"), true));
        assert_eq!(find("52-54-00-00-00-01"), Some(vm1));
        let vm2 = find("52:54:00:00:00:02").unwrap();
        assert_eq!((vm2.port.as_str(), vm2.host), ("vm2", None));
        assert_eq!(find("vm3"), None);
        assert!(unknown(&model, 7, "vm3").remedy.contains("did you mean `vm1`?"));
    }
}
