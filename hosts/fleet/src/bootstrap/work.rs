//! The steps of a bootstrap. Each looks first, and does and reports only what is missing.

use super::{Account, NEXT, rename};
use crate::etcd::Permission;
use crate::etcd::access::file;
use crate::store::{Store, User};
use crate::{Name, secret};
use problem::Problem;
use std::path::Path;

pub(super) struct Work<'a> {
    pub(super) store: Store,
    /// Whether etcd requires users already.
    pub(super) enabled: bool,
    pub(super) dry_run: bool,
    pub(super) tell: &'a mut dyn FnMut(&str),
}

impl Work<'_> {
    pub(super) fn act(
        &mut self,
        what: &str,
        act: impl FnOnce(&Store) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        if self.dry_run {
            (self.tell)(&format!("would {what}"));
            return Ok(());
        }
        act(&self.store)?;
        (self.tell)(what);
        Ok(())
    }

    /// Gives a role exactly its permissions.
    pub(super) fn role(&mut self, user: &User) -> Result<(), Problem> {
        let name = &user.name;
        let found = self.store.etcd.role(name)?;
        if found.is_none() {
            self.act(&format!("make role {name}"), |store| Ok(store.etcd.add_role(name)?))?;
        }
        let (missing, surplus) = differences(user, &found.unwrap_or_default());
        for permission in &surplus {
            let what = format!("take {} from role {name}", text(permission));
            self.act(&what, |store| Ok(store.etcd.revoke_permission(name, permission)?))?;
        }
        for permission in &missing {
            let what = format!("let role {name} {}", text(permission));
            self.act(&what, |store| Ok(store.etcd.grant_permission(name, permission)?))?;
        }
        Ok(())
    }

    pub(super) fn user(&mut self, account: &Account) -> Result<(), Problem> {
        let (name, path) = (&account.user.name, account.password());
        let roles = self.store.etcd.user(name)?;
        match &roles {
            Some(_) if !self.enabled => self.known_password(account)?,
            Some(_) if !path.exists() => (self.tell)(&format!(
                "user {name} is there, but {} is not: --rotate {name} writes a new password",
                path.display()
            )),
            Some(_) => {}
            None => {
                let what = format!("make user {name}, with its password in {}", path.display());
                self.act(&what, |store| Ok(store.etcd.add_user(name, &written(account)?)?))?;
            }
        }
        self.roles(name, &roles.unwrap_or_default())
    }

    /// Gives a user the password on disk, before etcd requires passwords: that of an earlier setup
    /// may be lost.
    fn known_password(&mut self, account: &Account) -> Result<(), Problem> {
        let (name, path) = (&account.user.name, account.password());
        self.act(&format!("give user {name} the password in {}", path.display()), |store| {
            Ok(store.etcd.change_password(name, &written(account)?)?)
        })
    }

    /// Gives a user its own role, and takes all others.
    fn roles(&mut self, name: &str, has: &[String]) -> Result<(), Problem> {
        for role in has.iter().filter(|role| *role != name) {
            self.act(&format!("take role {role} from user {name}"), |store| {
                Ok(store.etcd.take_role(name, role)?)
            })?;
        }
        if has.iter().any(|role| role == name) {
            return Ok(());
        }
        self.act(&format!("give user {name} role {name}"), |store| {
            Ok(store.etcd.give_role(name, name)?)
        })
    }

    /// Gives a user a new password. The old one and its tokens become invalid at once. A host's
    /// status is deleted as well, as a thief may have written it.
    pub(super) fn rotate(&mut self, account: &Account) -> Result<(), Problem> {
        let (name, path) = (&account.user.name, account.password());
        let what = format!("give user {name} a new password, in {}", path.display());
        self.act(&what, |store| {
            let next = account.directory.join(NEXT);
            let password = kept_or_new(&next)?;
            write_user(account)?;
            store.etcd.change_password(name, &password)?;
            rename(&next, &path)?;
            account.host.as_ref().map_or(Ok(()), |host| store.end_status(host))
        })
    }

    /// Deletes a host's user, role and keys. The user is deleted first, so that a thief can write
    /// nothing afterwards.
    pub(super) fn remove(&mut self, host: &Name) -> Result<(), Problem> {
        let name = User::of_host(host).name;
        if self.store.etcd.user(&name)?.is_some() {
            self.act(&format!("delete user {name}"), |store| Ok(store.etcd.delete_user(&name)?))?;
        }
        if self.store.etcd.role(&name)?.is_some() {
            self.act(&format!("delete role {name}"), |store| Ok(store.etcd.delete_role(&name)?))?;
        }
        self.act(&format!("delete the status, registration and claims of host {host}"), |store| {
            store.erase(host)
        })
    }
}

/// Returns the password of an account: that on disk, or a new one, which is written first.
fn written(account: &Account) -> Result<String, Problem> {
    let password = kept_or_new(&account.password())?;
    write_user(account)?;
    Ok(password)
}

/// Returns the password in a file of an interrupted run, or a new one, which is written first.
fn kept_or_new(path: &Path) -> Result<String, Problem> {
    if path.exists() {
        return secret::password(path);
    }
    let password = secret::generate()?;
    secret::make_directory(path.parent().unwrap_or(path))?;
    secret::write(path, &format!("{password}\n"))?;
    Ok(password)
}

fn write_user(account: &Account) -> Result<(), Problem> {
    secret::write(&account.directory.join(file::USER), &format!("{}\n", account.user.name))
}

/// Returns the permissions that a role lacks, and those that it has but should not.
fn differences(user: &User, has: &[Permission]) -> (Vec<Permission>, Vec<Permission>) {
    let without = |these: &[Permission], those: &[Permission]| -> Vec<Permission> {
        these.iter().filter(|it| !those.contains(it)).cloned().collect()
    };
    (without(&user.permissions, has), without(has, &user.permissions))
}

fn text(permission: &Permission) -> String {
    let word = permission.right.word();
    match permission.range_end.as_str() {
        "" => format!("{word} {}", permission.key),
        end => format!("{word} from {} up to {end}", permission.key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::Right;

    #[test]
    fn a_role_gets_what_it_lacks_and_loses_what_it_should_not_have() {
        let user = User::of_host(&"a".parse().unwrap());
        assert_eq!(differences(&user, &user.permissions), (Vec::new(), Vec::new()));
        let foreign = Permission {
            right: Right::ReadWrite,
            key: "/millrace/v1/".to_owned(),
            range_end: "/millrace/v10".to_owned(),
        };
        let mut has = user.permissions.clone();
        let lost = std::mem::replace(&mut has[0], foreign.clone());
        assert_eq!(differences(&user, &has), (vec![lost], vec![foreign.clone()]));
        assert_eq!(text(&foreign), "read and write from /millrace/v1/ up to /millrace/v10");
    }

    #[test]
    fn a_password_of_an_interrupted_run_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts/a/password");
        let first = kept_or_new(&path).unwrap();
        assert_eq!(kept_or_new(&path).unwrap(), first);
    }
}
