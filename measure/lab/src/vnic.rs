//! Kinds of the guest's vNIC, and the receivers that a user can ask for.

use crate::LabError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of the guest's vNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vnic {
    /// A TAP that the switch creates in the guest's namespace.
    Tap,
    /// A veth whose other end is a packet port; used if /dev/net/tun cannot be opened.
    Veth,
    /// A vhost-user port, with a virtual machine behind it.
    VhostUser,
}

impl Vnic {
    /// Returns a TAP if /dev/net/tun can be opened, and a veth otherwise.
    pub(crate) fn possible() -> Vnic {
        if Vnic::tap().is_ok() { Vnic::Tap } else { Vnic::Veth }
    }

    /// Checks that a TAP can be created.
    ///
    /// # Errors
    /// /dev/net/tun cannot be opened.
    pub(crate) fn tap() -> std::io::Result<()> {
        std::fs::File::options().read(true).write(true).open("/dev/net/tun").map(drop)
    }
}

/// Receivers that `validate rsc` can measure toward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receivers {
    /// A TAP without GRO of its own.
    Tap,
    /// A TAP with a kernel that coalesces (GRO) what it receives.
    TapGro,
    /// The vhost-user vNIC of a virtual machine.
    Qemu,
    /// A TAP without and one with GRO, one after the other.
    Both,
}

impl Receivers {
    /// Returns the receivers to measure: those asked for, or both. `None` if none was asked for and
    /// the vNIC is a veth.
    ///
    /// # Errors
    /// [`LabError::NoTap`] if one was asked for and a TAP cannot be created.
    pub fn possible(asked: Option<Receivers>) -> Result<Option<Receivers>, LabError> {
        match (asked, Vnic::tap()) {
            (Some(Receivers::Qemu), _) => Ok(asked),
            (asked, Ok(())) => Ok(asked.or(Some(Receivers::Both))),
            (None, Err(_)) => Ok(None),
            (Some(asked), Err(source)) => Err(LabError::NoTap { asked: asked.to_string(), source }),
        }
    }
}

impl fmt::Display for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Receivers::Tap => "tap",
            Receivers::TapGro => "tap-gro",
            Receivers::Qemu => "qemu",
            Receivers::Both => "both",
        })
    }
}
