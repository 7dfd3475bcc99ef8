//! MTUs of ports and of the devices behind them.

use crate::Problem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What `millrace mtu check` compares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MtuBody {
    /// Whether there are no findings.
    pub healthy: bool,
    /// All ports, by name.
    pub ports: Vec<MtuPortBody>,
    /// What of their MTUs does not fit together.
    pub findings: Vec<Problem>,
}

/// A port's MTU, and those of what it stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MtuPortBody {
    /// Its name.
    pub port: String,
    /// Kind and name of its device.
    pub device: String,
    /// VLAN mode, as in `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// Largest IP packet that leaves by the port, in bytes; absent while its device is not open.
    pub mtu: Option<u16>,
    /// Devices of the host that its frames go through: its own, those below that, and the members of a team.
    pub links: Vec<MtuLinkBody>,
    /// Frames that were too big for the port.
    pub too_big: u64,
    /// Path of the network namespace of a TAP, where that is not the daemon's own.
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
