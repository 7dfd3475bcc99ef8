//! MTUs of ports and of the devices behind them.

use problem::Problem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The MTUs that `millrace mtu check` compares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MtuBody {
    /// Whether there are no findings.
    pub healthy: bool,
    /// All ports, by name.
    pub ports: Vec<MtuPortBody>,
    /// MTUs that do not match.
    pub findings: Vec<Problem>,
}

/// A port's MTU, and those of the devices below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MtuPortBody {
    /// Its name.
    pub port: String,
    /// Kind and name of its device.
    pub device: String,
    /// VLAN mode, such as `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// Largest IP packet that leaves through the port, in bytes; absent while its device is not
    /// open.
    pub mtu: Option<u16>,
    /// Host devices that its frames pass: its own, those below it, and the members of a team.
    pub links: Vec<MtuLinkBody>,
    /// Frames that were too big for the port.
    pub too_big: u64,
    /// Path of a TAP's network namespace, if it is not the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

/// A device of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MtuLinkBody {
    /// Its name.
    pub name: String,
    /// Its MTU, in bytes.
    pub mtu: u16,
}
