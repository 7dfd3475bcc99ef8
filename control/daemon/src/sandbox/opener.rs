//! Refuses the ports that a restricted daemon cannot open, before their devices are touched.

use super::refusal;
use config::{PortConfig, Scale};
use devices::store::Store;
use devices::{OpenError, Opened, Opener};
use ports::kernel_path::KernelPath;
use problem::Problem;
use std::path::Path;

/// An opener of devices behind the restrictions of this process.
pub(crate) struct Restricted(pub(crate) Box<dyn Opener>);

impl Opener for Restricted {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        match refusal(port) {
            Some(problem) => Err(OpenError { reason: problem.to_string(), denied: false }),
            None => self.0.open(port, scale),
        }
    }

    fn identify(&self, state: &Path) {
        self.0.identify(state);
    }

    fn use_kernel_path(&self, path: KernelPath) {
        self.0.use_kernel_path(path);
    }

    fn remove(&self, port: &PortConfig) -> Result<(), Problem> {
        self.0.remove(port)
    }

    fn remove_strays(&self, ports: &[&PortConfig]) {
        self.0.remove_strays(ports);
    }

    fn store(&self) -> Store {
        self.0.store()
    }
}
