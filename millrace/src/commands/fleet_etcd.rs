//! Options with which the fleet's commands reach etcd, and the user as which they do.

use crate::output::{Failure, Outcome};
use clap::Args;
use fleet::etcd::{Access, Endpoint, Etcd, Identity};
use fleet::store::Store;
use problem::Problem;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub(super) struct At {
    /// Client URLs of etcd's members, separated by commas.
    #[arg(
        long,
        value_name = "URL",
        env = "MILLRACE_ETCD",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379",
        value_parser = endpoint
    )]
    pub(super) etcd: Vec<Endpoint>,
    /// The directory of this host or person that `fleet certificates` and `fleet bootstrap` wrote;
    /// the options below go before its files.
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "MILLRACE_ETCD_CREDENTIALS",
        hide_env_values = true
    )]
    credentials: Option<PathBuf>,
    /// PEM file with the authorities that sign etcd's certificates.
    #[arg(long, value_name = "FILE", env = "MILLRACE_ETCD_CACERT", hide_env_values = true)]
    cacert: Option<PathBuf>,
    /// PEM file with the client's certificate.
    #[arg(long, value_name = "FILE", env = "MILLRACE_ETCD_CERT", hide_env_values = true)]
    cert: Option<PathBuf>,
    /// PEM file with its key, of mode 0600.
    #[arg(long, value_name = "FILE", env = "MILLRACE_ETCD_KEY", hide_env_values = true)]
    key: Option<PathBuf>,
    /// User in etcd.
    #[arg(long, value_name = "NAME", env = "MILLRACE_ETCD_USER", hide_env_values = true)]
    user: Option<String>,
    /// File with the user's password, of mode 0600.
    #[arg(long, value_name = "FILE", env = "MILLRACE_ETCD_PASSWORD_FILE", hide_env_values = true)]
    password_file: Option<PathBuf>,
    /// Permit http:// to another machine, which anyone on the way can read and change.
    #[arg(long)]
    pub(super) insecure_http: bool,
}

fn endpoint(text: &str) -> Result<Endpoint, Problem> {
    text.parse()
}

impl At {
    /// Returns the identity. Values that the options leave out come from `--credentials`, otherwise
    /// from `directory`.
    ///
    /// # Errors
    /// The directory does not exist.
    pub(super) fn identity(&self, directory: Option<PathBuf>) -> Result<Identity, Problem> {
        let given = Identity {
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
        };
        match self.credentials.clone().or(directory) {
            Some(directory) => given.or_from(&directory),
            None => Ok(given),
        }
    }

    /// Returns the access to etcd that the options describe.
    ///
    /// # Errors
    /// The endpoints do not suit the identity, or a file cannot be read.
    pub(super) fn access(&self) -> Result<Arc<Access>, Failure> {
        let access = Access::new(&self.etcd, &self.identity(None)?, self.insecure_http);
        Ok(Arc::new(access.map_err(Failure::Usage)?))
    }

    /// Calls `work` with the fleet's documents. If that fails because etcd does not answer, the
    /// exit code says so.
    pub(super) fn work(&self, work: impl FnOnce(&Store) -> Outcome) -> Outcome {
        let store = Store::new(Etcd::new(self.access()?)?);
        match work(&store) {
            Err(Failure::Failed(problem)) if store.etcd.is_away() => {
                Err(Failure::Unreachable(problem))
            }
            outcome => outcome,
        }
    }
}
