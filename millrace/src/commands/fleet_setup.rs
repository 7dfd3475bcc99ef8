//! `millrace fleet certificates` and `millrace fleet bootstrap`: who may do what in the fleet.

use super::fleet_etcd::At;
use super::fleet_options::name;
use crate::output::{Outcome, print};
use clap::Args;
use fleet::Name;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet certificates fleet-keys/ --member etcd1.example --member 10.0.0.1 --host a --host b
  millrace fleet certificates fleet-keys/ --host c                # add a host
  millrace fleet certificates fleet-keys/ --host a --renew

Needs no etcd. What is there stays: a second run only adds. Copy etcd/ to etcd's members and hosts/NAME/ to each host; keep the rest,
above all ca.key, where nobody else can read it.")]
pub(super) struct Certificates {
    /// The directory in which they are kept.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// A name or address by which clients reach a member of etcd; may be repeated. Without it etcd
    /// gets no certificate.
    #[arg(long = "member", value_name = "NAME")]
    members: Vec<String>,
    /// A host of the fleet; may be repeated.
    #[arg(long = "host", value_name = "NAME", value_parser = name)]
    hosts: Vec<Name>,
    /// For how many days the certificates are in force.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Replace the certificates of these hosts and members, of `operator` and of `root`.
    #[arg(long)]
    renew: bool,
}

impl Certificates {
    pub(super) fn run(&self) -> Outcome {
        let certificates = fleet::certificates::Certificates {
            directory: self.directory.clone(),
            members: self.members.clone(),
            hosts: self.hosts.clone(),
            days: self.days,
            renew: self.renew,
        };
        told("nothing to do: all certificates are there", |tell| certificates.run(tell))
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet bootstrap fleet-keys/ --host a --host b --etcd https://etcd1.example:2379 --dry-run
  millrace fleet bootstrap fleet-keys/ --host c --etcd https://etcd1.example:2379            # add a host
  millrace fleet bootstrap fleet-keys/ --host a --rotate host-a --etcd https://etcd1.example:2379
  millrace fleet bootstrap fleet-keys/ --remove b --etcd https://etcd1.example:2379          # a host that is no more

Makes the users `root` and `operator`, and `host-NAME` for each host, each with a role and a password in a file. After that etcd asks
everyone for a user. It can be run again at any time. It refuses an etcd older than 3.4.44, 3.5.30 or 3.6.11, which does not check all
requests. docs/fleet.md says what each user may do.")]
pub(super) struct Bootstrap {
    /// The directory in which `fleet certificates` made certificates; passwords go there as well.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// A host of the fleet; may be repeated.
    #[arg(long = "host", value_name = "NAME", value_parser = name)]
    hosts: Vec<Name>,
    /// Give this user a new password; may be repeated.
    #[arg(long, value_name = "USER")]
    rotate: Vec<String>,
    /// Delete the user, the role, the status and the claims of this host, which is off or erased;
    /// may be repeated.
    #[arg(long, value_name = "NAME", value_parser = name)]
    remove: Vec<Name>,
    /// Go on although etcd does not check all requests, so that each host's certificate controls
    /// every host.
    #[arg(long)]
    permit_unmended_etcd: bool,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: At,
}

impl Bootstrap {
    pub(super) fn run(&self) -> Outcome {
        let root = Some(self.directory.join("root")).filter(|root| root.is_dir());
        let bootstrap = fleet::bootstrap::Bootstrap {
            endpoints: self.at.etcd.clone(),
            identity: self.at.identity(root)?,
            insecure: self.at.insecure_http,
            directory: self.directory.clone(),
            hosts: self.hosts.clone(),
            rotate: self.rotate.clone(),
            remove: self.remove.clone(),
            permit_unmended: self.permit_unmended_etcd,
            dry_run: self.dry_run,
        };
        told("nothing to do: users and roles are as they should be", |tell| bootstrap.run(tell))
    }
}

/// Prints each line that `work` reports, or `nothing` if it reports none.
fn told(
    nothing: &str,
    work: impl FnOnce(&mut dyn FnMut(&str)) -> Result<(), problem::Problem>,
) -> Outcome {
    let (mut any, mut closed) = (false, Ok(()));
    let done = work(&mut |line| {
        any = true;
        if closed.is_ok() {
            closed = print(line);
        }
    });
    done?;
    closed?;
    if !any {
        print(nothing)?;
    }
    Ok(ExitCode::SUCCESS)
}
