//! The kernel path of the running switch, or why there is none.

use crate::health::kind::Kind;
use api::body::FindingBody;
use config::{Config, Device, KernelPathMode, PortConfig, PortRole};
use datapath::Switch;
use devices::Opener;
use ports::kernel_path::{KernelPath, preempts_softirqs};
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
    /// The kernel preempts softirqs, as this says.
    Preempts(String),
}

/// Loads the programs for the switch and the ports that are opened from now on, unless the
/// configuration has it off.
pub(super) fn load(config: &Config, switch: &mut Switch, opener: &dyn Opener) -> State {
    if config.switch.kernel_path == KernelPathMode::Off {
        return State::Off;
    }
    if let Some(seen) = preempts_softirqs() {
        return State::Preempts(seen);
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
            State::Preempts(seen) => {
                is_missed(config).then(|| Kind::KernelPathRefused.found(preempts(seen)))
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

fn preempts(seen: &str) -> Problem {
    Problem::new("the kernel carries no flows: this one preempts softirqs, for which the kernel path is not made")
        .seen(seen)
        .wanted("a kernel without PREEMPT_RT")
        .remedy("boot another kernel, or set `kernel-path = \"off\"` in [switch]; the switch carries all frames meanwhile")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a real-time kernel runs, a port that could use the kernel path has a finding.
    #[test]
    fn a_kernel_that_preempts_softirqs_is_a_finding_where_the_kernel_path_is_wanted() {
        let settings = crate::settings::of_switch(&Config::default().switch);
        let switch = Switch::start(settings).unwrap();
        let state = State::Preempts("/sys/kernel/realtime is 1".to_owned());
        let finding = |port: &str| {
            let text = format!("[switch]\nkernel-path = 'auto'\n[[port]]\nname = 'a'\n{port}\n");
            state.finding(&Config::from_toml("t", &text).unwrap(), &switch)
        };
        let found = finding("veth = 'v0'\nnetns = 'c1'").unwrap();
        assert_eq!(found.kind, "kernel_path_refused");
        assert!(found.problem.wanted.contains("PREEMPT_RT"), "{:?}", found.problem);
        assert!(finding("tap = 't0'").is_none());
    }
}
