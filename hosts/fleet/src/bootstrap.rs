//! Sets up users and roles of etcd, and writes each user's password to a file.
//!
//! Each step looks first and does only what is missing, so an interrupted run is run again, and a
//! later run adds hosts. A password is on disk before etcd has it, so none is ever lost; it is
//! neither printed nor passed on a command line. etcd requires users only after the last step:
//! until then nothing changes for its clients.

mod mended;
mod work;

use crate::Name;
use crate::certificates::host_directory;
use crate::etcd::access::file;
use crate::etcd::error::NO_USER;
use crate::etcd::{Access, Endpoint, Etcd, Identity};
use crate::store::{Store, User};
use mended::unmended;
use problem::Problem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use work::Work;

/// The file with a new password while it is being changed: etcd may have it already.
const NEXT: &str = "password.next";

/// The users to be set up.
pub struct Bootstrap {
    /// The members of etcd.
    pub endpoints: Vec<Endpoint>,
    /// The certificates by which to reach them. User and password come from `directory`.
    pub identity: Identity,
    /// Whether plain HTTP to another machine is permitted.
    pub insecure: bool,
    /// The directory with the credentials, one directory a user.
    pub directory: PathBuf,
    /// The hosts.
    pub hosts: Vec<Name>,
    /// The users that get new passwords.
    pub rotate: Vec<String>,
    /// The hosts to be removed, with their users, roles and keys.
    pub remove: Vec<Name>,
    /// Whether to go on with an etcd that does not check all requests.
    pub permit_unmended: bool,
    /// Whether only to report what would be done.
    pub dry_run: bool,
}

/// A user of etcd, and the directory with its credentials.
struct Account {
    user: User,
    /// The host, for the user of a host's agent.
    host: Option<Name>,
    directory: PathBuf,
}

impl Account {
    fn password(&self) -> PathBuf {
        self.directory.join(file::PASSWORD)
    }
}

impl Bootstrap {
    /// Sets up what is missing. `tell` gets lines that report each step.
    ///
    /// # Errors
    /// Fails if a name is used twice, a registered host would get no user, etcd has a known fault
    /// and that is not permitted, etcd does not answer or refuses a request, or a file cannot be
    /// written.
    pub fn run(&self, tell: &mut dyn FnMut(&str)) -> Result<(), Problem> {
        let accounts = self.accounts();
        self.check_names(&accounts)?;
        let (etcd, enabled) = self.connect()?;
        let faults = self.faults(enabled)?;
        let refuses = |faults: &[String]| !faults.is_empty() && !self.permit_unmended;
        if !enabled && refuses(&faults) {
            return Err(unmended(&faults, false));
        }
        let mut work = Work { store: Store::new(etcd), enabled, dry_run: self.dry_run, tell };
        if !enabled {
            self.check_registered(&work.store)?;
        }
        self.work(&mut work, &accounts)?;
        let enables = !enabled && !self.dry_run;
        let faults = if enables { self.faults(true)? } else { faults };
        if refuses(&faults) {
            return Err(unmended(&faults, true));
        }
        if !faults.is_empty() {
            tell(&format!("warning: {}", unmended(&faults, true)));
        }
        Ok(())
    }

    fn work(&self, work: &mut Work<'_>, accounts: &[Account]) -> Result<(), Problem> {
        for account in accounts {
            work.role(&account.user)?;
            work.user(account)?;
            // An interrupted run left a new password: etcd has it already, or gets it now.
            if self.rotate.contains(&account.user.name) || account.directory.join(NEXT).exists() {
                work.rotate(account)?;
            }
        }
        for host in &self.remove {
            work.remove(host)?;
        }
        if !work.enabled {
            work.act("make etcd ask for users", |store| Ok(store.etcd.enable_auth()?))?;
        }
        Ok(())
    }

    /// Returns all users to be set up.
    fn accounts(&self) -> Vec<Account> {
        let person = |user: User| {
            let directory = self.directory.join(&user.name);
            Account { user, host: None, directory }
        };
        let host = |host: &Name| {
            let directory = host_directory(&self.directory, host);
            Account { user: User::of_host(host), host: Some(host.clone()), directory }
        };
        let people = [User::root(), User::operator()].map(person);
        people.into_iter().chain(self.hosts.iter().map(host)).collect()
    }

    fn check_names(&self, accounts: &[Account]) -> Result<(), Problem> {
        if let Some(host) = self.remove.iter().find(|host| self.hosts.contains(host)) {
            return Err(Problem::new("a host is to be both there and removed")
                .seen(format!("--host {host} --remove {host}"))
                .wanted("one of them")
                .remedy("leave one of them out"));
        }
        let known: Vec<&str> = accounts.iter().map(|it| it.user.name.as_str()).collect();
        match self.rotate.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Problem::new(format!("there is no user {name} to rotate"))
                .seen(name)
                .wanted(known.join(", "))
                .remedy("for a host `a` give --host a --rotate host-a")),
        }
    }

    /// Refuses while a registered host would be cut off because it gets no user.
    fn check_registered(&self, store: &Store) -> Result<(), Problem> {
        let mut without = Vec::new();
        for record in store.hosts()? {
            let host = record.host.name;
            let is_named = self.hosts.contains(&host) || self.remove.contains(&host);
            if !is_named && store.etcd.user(&User::of_host(&host).name)?.is_none() {
                without.push(host.to_string());
            }
        }
        if without.is_empty() {
            return Ok(());
        }
        Err(Problem::new("hosts of the fleet would be cut off: they have no user")
            .seen(without.join(", "))
            .wanted("a user for each registered host")
            .remedy("give --host for each; one that is no more is forgotten with `millrace fleet forget` or --remove"))
    }

    /// Returns the path of a file of etcd's superuser.
    fn of_root(&self, name: &str) -> PathBuf {
        self.directory.join("root").join(name)
    }

    /// Returns a client for these members, as etcd's superuser with the password in this file, or
    /// unauthenticated.
    fn client(&self, members: &[Endpoint], root: Option<PathBuf>) -> Result<Etcd, Problem> {
        let (user, password_file) = (root.as_ref().map(|_| "root".to_owned()), root);
        let identity = Identity { user, password_file, ..self.identity.clone() };
        Etcd::new(Arc::new(Access::new(members, &identity, self.insecure)?))
    }

    /// Returns a client as etcd's superuser if etcd requires users, and otherwise an
    /// unauthenticated one; and whether etcd requires users.
    fn connect(&self) -> Result<(Etcd, bool), Problem> {
        let etcd = self.client(&self.endpoints, None)?;
        match etcd.user("root") {
            Ok(_) => return Ok((etcd, false)),
            Err(error) if !error.says(NO_USER) => return Err(error.into()),
            Err(_) => {}
        }
        let [path, next] = [file::PASSWORD, NEXT].map(|name| self.of_root(name));
        if !path.exists() && !next.exists() {
            return Err(Problem::new("etcd asks for users, and root's password is not here")
                .seen(format!("no file {}", path.display()))
                .wanted("the directory with which etcd was set up")
                .remedy("name that directory; for an etcd that others have set up, put root's password there"));
        }
        if next.exists() && self.is_password_of_root(&next)? {
            rename(&next, &path)?;
        }
        let etcd = self.client(&self.endpoints, Some(path))?;
        etcd.user("root")?;
        Ok((etcd, true))
    }

    /// Whether an interrupted run has given root the password in this file.
    fn is_password_of_root(&self, path: &Path) -> Result<bool, Problem> {
        match self.client(&self.endpoints, Some(path.to_owned()))?.user("root") {
            Ok(_) => Ok(true),
            Err(error) if error.says("authentication failed") => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn rename(next: &Path, path: &Path) -> Result<(), Problem> {
    std::fs::rename(next, path).map_err(|error| {
        Problem::new(format!("etcd has the password in {}", next.display()))
            .seen(error)
            .wanted(format!("it in {}", path.display()))
            .remedy("rename the file")
    })
}

#[cfg(test)]
mod tests;
