//! The kernel path of the running switch, or why there is none.

use config::{Config, KernelPathMode};
use datapath::Switch;
use devices::Opener;
use ports::kernel_path::KernelPath;

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
