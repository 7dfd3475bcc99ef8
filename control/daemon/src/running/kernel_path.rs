//! The kernel path of the running switch, or why there is none.

use crate::health::kind::Kind;
use api::body::FindingBody;
use config::{Config, Device, KernelPathMode, PortConfig, PortRole};
use datapath::Switch;
use devices::Opener;
use ports::kernel_path::KernelPath;
use problem::Problem;

/// Whether the kernel carries flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The programs are loaded.
    Loaded,
    /// The configuration has it off.
    Off,
    /// The kernel refused the programs, for this reason.
    Refused(String),
}

/// Loads the programs for the switch and the ports that are opened from now on, unless the
/// configuration has it off.
pub(super) fn load(config: &Config, switch: &mut Switch, opener: &dyn Opener) -> State {
    if config.switch.kernel_path == KernelPathMode::Off {
        return State::Off;
    }
    match KernelPath::load() {
        Ok(path) => {
            switch.use_kernel_path(path.clone());
            opener.use_kernel_path(path);
            State::Loaded
        }
        Err(error) => State::Refused(error.to_string()),
    }
}

impl State {
    /// Returns what is wrong with the kernel path, if a port could use it.
    pub(super) fn finding(&self, config: &Config, switch: &Switch) -> Option<FindingBody> {
        match self {
            State::Off => None,
            State::Refused(reason) => {
                is_missed(config).then(|| Kind::KernelPathRefused.found(refused(reason)))
            }
            State::Loaded => {
                let path = switch.kernel_path()?;
                if path.is_pausing() {
                    return Some(Kind::KernelPathPaused.found(paused(path)));
                }
                let reason = path.unchecked().filter(|_| is_missed(config))?;
                Some(Kind::KernelPathRefused.found(unchecked(reason)))
            }
        }
    }
}

/// Whether a port could use what the kernel refused.
fn is_missed(config: &Config) -> bool {
    config.ports.iter().any(could_use)
}

/// Whether a port faces a container or a VMM by an interface of the host.
fn could_use(port: &PortConfig) -> bool {
    port.role() == PortRole::Vnic && matches!(port.device(), Device::Packet(_) | Device::Veth(_))
}

fn refused(reason: &str) -> Problem {
    Problem::new("the kernel carries no flows: it refused the programs for that")
        .seen(reason)
        .wanted("CAP_BPF and CAP_NET_ADMIN outside any user namespace, and Linux 6.6")
        .remedy("give the daemon both, or set `kernel-path = \"off\"` in [switch]")
}

fn unchecked(reason: &str) -> Problem {
    Problem::new(
        "the kernel carries nothing that containers and VMs send: it does not check what they say about checksums",
    )
    .seen(reason)
    .wanted("CAP_PERFMON or CAP_SYS_ADMIN at the start, and a kernel with CONFIG_DEBUG_INFO_BTF")
    .remedy("give the daemon CAP_SYS_ADMIN as the packaged unit does: a helper process gets it")
}

fn paused(path: &KernelPath) -> Problem {
    Problem::new("the kernel carries no flows for a while: another program takes their frames")
        .seen(format!("{} frames", path.unmatched()))
        .wanted("no other tc or XDP program that takes frames of these ports")
        .remedy(
            "remove that program (`tc filter show dev DEVICE ingress`, `bpftool net`): the kernel path is tried again \
             within an hour; or set `kernel-path = \"off\"` in [switch]",
        )
}
