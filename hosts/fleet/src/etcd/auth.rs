//! Users and roles of etcd, for `fleet bootstrap`.

use super::message::{RangeRequest, text};
use super::{Etcd, EtcdError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The right of a role to the keys of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Right {
    /// Read and watch them. etcd omits this value in its answers.
    #[default]
    Read,
    /// Write and delete them.
    Write,
    /// Both.
    ReadWrite,
}

impl Right {
    /// Returns the right in words.
    pub const fn word(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::ReadWrite => "read and write",
        }
    }
}

/// A role's right to the keys from `key` up to but not including `range_end`; without `range_end`,
/// to one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// The right.
    #[serde(rename = "permType", default)]
    pub right: Right,
    /// The first key.
    #[serde(with = "text")]
    pub key: String,
    /// The key behind the last.
    #[serde(default, with = "text")]
    pub range_end: String,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    perm: Vec<Permission>,
}

#[derive(Deserialize)]
struct Status {
    version: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    roles: Vec<String>,
}

impl Etcd {
    /// Returns a role's permissions; `None` if there is no such role.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn role(&self, role: &str) -> Result<Option<Vec<Permission>>, EtcdError> {
        let read = self.call::<Role>("/v3/auth/role/get", &json!({ "role": role }));
        unless(read.map(|role| role.perm), "role name not found")
    }

    /// Makes a role without permissions.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn add_role(&self, role: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/role/add", json!({ "name": role }))
    }

    /// Gives a role a permission.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn grant_permission(&self, role: &str, permission: &Permission) -> Result<(), EtcdError> {
        self.tell("/v3/auth/role/grant", json!({ "name": role, "perm": permission }))
    }

    /// Takes a permission from a role.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn revoke_permission(&self, role: &str, permission: &Permission) -> Result<(), EtcdError> {
        let Permission { right: _, key, range_end } = permission;
        let range = Range { role, key, range_end };
        self.call::<Value>("/v3/auth/role/revoke", &range).map(drop)
    }

    /// Returns a user's roles; `None` if there is no such user.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn user(&self, user: &str) -> Result<Option<Vec<String>>, EtcdError> {
        let read = self.call::<User>("/v3/auth/user/get", &json!({ "name": user }));
        unless(read.map(|user| user.roles), "user name not found")
    }

    /// Makes a user without roles.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn add_user(&self, user: &str, password: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/user/add", json!({ "name": user, "password": password }))
    }

    /// Gives a user a new password; etcd forgets the user's tokens.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn change_password(&self, user: &str, password: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/user/changepw", json!({ "name": user, "password": password }))
    }

    /// Gives a user a role.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn give_role(&self, user: &str, role: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/user/grant", json!({ "user": user, "role": role }))
    }

    /// Takes a role from a user.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn take_role(&self, user: &str, role: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/user/revoke", json!({ "name": user, "role": role }))
    }

    /// Deletes a user; etcd forgets its tokens.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn delete_user(&self, user: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/user/delete", json!({ "name": user }))
    }

    /// Deletes a role.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn delete_role(&self, role: &str) -> Result<(), EtcdError> {
        self.tell("/v3/auth/role/delete", json!({ "role": role }))
    }

    /// Returns the version of the member that answers.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn version(&self) -> Result<String, EtcdError> {
        self.call("/v3/maintenance/status", &json!({})).map(|it: Status| it.version)
    }

    /// Returns whether etcd carries out a read inside a nested transaction for this client. It
    /// changes nothing.
    ///
    /// # Errors
    /// Fails if etcd does not answer, or refuses for another reason than the client's rights.
    pub fn permits_nested(&self, key: &str) -> Result<bool, EtcdError> {
        let read = json!({ "request_range": RangeRequest::key(key) });
        let nested = json!({ "request_txn": { "success": [read] } });
        match self.call::<Value>("/v3/kv/txn", &json!({ "success": [nested] })) {
            Ok(_) => Ok(true),
            Err(error) if error.is_of_user() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes etcd require a user for every request.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn enable_auth(&self) -> Result<(), EtcdError> {
        self.tell("/v3/auth/enable", json!({}))
    }

    fn tell(&self, path: &str, request: Value) -> Result<(), EtcdError> {
        self.call::<Value>(path, &request).map(drop)
    }
}

#[derive(Serialize)]
struct Range<'a> {
    role: &'a str,
    #[serde(serialize_with = "text::serialize")]
    key: &'a str,
    #[serde(serialize_with = "text::serialize")]
    range_end: &'a str,
}

fn unless<T>(read: Result<T, EtcdError>, missing: &str) -> Result<Option<T>, EtcdError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.says(missing) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// etcd 3.4 writes a role like this: a right to read has no name.
    #[test]
    fn permissions_are_read_whatever_they_omit() {
        let role: Role = serde_json::from_value(json!({ "perm": [
            { "permType": "READWRITE", "key": "L2Ev", "range_end": "L2Ew" },
            { "key": "L2Iv" },
        ]}))
        .unwrap();
        let permission = |right, key: &str, range_end: &str| Permission {
            right,
            key: key.to_owned(),
            range_end: range_end.to_owned(),
        };
        assert_eq!(
            role.perm,
            [permission(Right::ReadWrite, "/a/", "/a0"), permission(Right::Read, "/b/", "")]
        );
        assert_eq!(serde_json::from_value::<Role>(json!({})).unwrap().perm, []);
        let range = Range { role: "r", key: "/a/", range_end: "/a0" };
        let wanted = json!({ "role": "r", "key": "L2Ev", "range_end": "L2Ew" });
        assert_eq!(serde_json::to_value(range).unwrap(), wanted);
    }
}
