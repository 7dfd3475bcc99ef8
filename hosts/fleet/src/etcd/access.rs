//! How a client reaches etcd, and as whom: endpoints, certificates, user and password.

use super::Endpoint;
use super::tls::Tls;
use crate::secret;
use problem::Problem;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The files and the user name by which a client authenticates itself. The fields are named like
/// etcdctl's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Certificates of the authorities that sign etcd's certificates.
    pub cacert: Option<PathBuf>,
    /// This client's certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The user in etcd.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
}

/// The names of an identity's files in a directory that `bootstrap` has written.
pub(crate) mod file {
    pub(crate) const CACERT: &str = "ca.crt";
    pub(crate) const CERT: &str = "client.crt";
    pub(crate) const KEY: &str = "client.key";
    pub(crate) const USER: &str = "user";
    pub(crate) const PASSWORD: &str = "password";
}

impl Identity {
    /// Fills in what this identity lacks, from a directory that `bootstrap` has written. Missing
    /// files are left out.
    ///
    /// # Errors
    /// Fails if the directory does not exist.
    pub fn or_from(self, directory: &Path) -> Result<Identity, Problem> {
        if !directory.is_dir() {
            return Err(Problem::new("there are no credentials")
                .seen(format!("{} is not a directory", directory.display()))
                .wanted(
                    "the directory that `millrace fleet bootstrap` wrote for this host or person",
                )
                .remedy("copy it to this host, and name it with --credentials"));
        }
        let there = |name: &str| Some(directory.join(name)).filter(|path| path.exists());
        let user = || {
            let text =
                there(file::USER).map(|path| std::fs::read_to_string(path).unwrap_or_default());
            text.map(|text| text.trim().to_owned())
        };
        Ok(Identity {
            cacert: self.cacert.or_else(|| there(file::CACERT)),
            cert: self.cert.or_else(|| there(file::CERT)),
            key: self.key.or_else(|| there(file::KEY)),
            user: self.user.or_else(user),
            password_file: self.password_file.or_else(|| there(file::PASSWORD)),
        })
    }
}

/// A user of etcd. The password is read from its file at each login, so that a rotated one needs no
/// restart.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password_file: PathBuf,
}

/// A way to reach etcd, shared by the clients of a process: they also share the token of their
/// user.
pub struct Access {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) tls: Option<Tls>,
    pub(super) login: Option<Login>,
    token: Mutex<Option<String>>,
}

impl Access {
    /// Reads the files. `insecure` permits plain HTTP to other machines.
    ///
    /// # Errors
    /// Fails if the endpoints do not suit the identity, or a file cannot be read.
    pub fn new(
        endpoints: &[Endpoint],
        identity: &Identity,
        insecure: bool,
    ) -> Result<Access, Problem> {
        check_schemes(endpoints, identity, insecure)?;
        let tls =
            endpoints.iter().any(Endpoint::is_tls).then(|| Tls::read(identity)).transpose()?;
        let (endpoints, login) = (endpoints.to_vec(), login(identity)?);
        Ok(Access { endpoints, tls, login, token: Mutex::default() })
    }

    /// Returns when certificates end, in seconds since 1970, with their owners: `host` is this
    /// client, and `etcd` the server that answered last.
    pub(crate) fn certificates_end(&self) -> Vec<(&'static str, u64)> {
        let ends = self.tls.as_ref().map_or([None; 2], Tls::ends);
        ["host", "etcd"]
            .into_iter()
            .zip(ends)
            .filter_map(|(whose, end)| Some((whose, end?)))
            .collect()
    }

    /// Returns the token of the last login.
    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_token(&self, token: String) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }
}

impl fmt::Debug for Access {
    /// Leaves out the token, which is as good as the password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { endpoints, tls, login, token: _ } = self;
        write!(out, "Access {{ endpoints: {endpoints:?}, tls: {tls:?}, login: {login:?} }}")
    }
}

/// Refuses plain HTTP to other machines, which would show passwords and the fleet's state, unless
/// `insecure`. Also refuses a mixture of http and https: a client that changes endpoints would
/// silently lose TLS.
fn check_schemes(
    endpoints: &[Endpoint],
    identity: &Identity,
    insecure: bool,
) -> Result<(), Problem> {
    let Some(open) = endpoints.iter().find(|it| !it.is_tls()) else { return Ok(()) };
    if let Some(secure) = endpoints.iter().find(|it| it.is_tls()) {
        return Err(Problem::new("the endpoints mix https:// with http://")
            .seen(format!("{secure} and {open}"))
            .wanted("https:// for all members")
            .remedy("give all members' https:// URLs with --etcd"));
    }
    if insecure {
        return Ok(());
    }
    if !open.is_loopback() {
        return Err(open_network(open));
    }
    if *identity != Identity::default() {
        return Err(credentials_in_clear(open));
    }
    Ok(())
}

fn credentials_in_clear(endpoint: &Endpoint) -> Problem {
    Problem::new(
        "credentials are given for plain HTTP: whoever listens there would get the password",
    )
    .seen(endpoint)
    .wanted("https:// with credentials, or http:// on loopback without")
    .remedy("name etcd's https:// URL with --etcd; if you mean it, --insecure-http permits this")
}

fn login(identity: &Identity) -> Result<Option<Login>, Problem> {
    match (&identity.user, &identity.password_file) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(half("--password-file", "--user")),
        (Some(_), None) => Err(half("--user", "--password-file")),
        (Some(user), Some(path)) => {
            secret::password(path)?;
            Ok(Some(Login { user: user.clone(), password_file: path.clone() }))
        }
    }
}

/// Returns the problem of one option without another that belongs to it.
pub(super) fn half(given: &str, missing: &str) -> Problem {
    Problem::new(format!("{given} is given without {missing}"))
        .seen(given)
        .wanted("both, or neither")
        .remedy(format!("give {missing} as well"))
}

fn open_network(endpoint: &Endpoint) -> Problem {
    Problem::new("plain HTTP to another machine is refused: anyone on the way reads and changes it")
        .seen(endpoint)
        .wanted("https://, or http:// on loopback")
        .remedy(
            "use TLS (docs/fleet.md, Security); on a network that you trust, --insecure-http permits it",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(endpoint: &str, identity: &Identity, insecure: bool) -> Result<Access, Problem> {
        Access::new(&[endpoint.parse().unwrap()], identity, insecure)
    }

    #[test]
    fn plain_http_leaves_the_machine_only_if_that_was_said() {
        let nobody = Identity::default();
        assert!(access("http://127.0.0.1:2379", &nobody, false).is_ok());
        let problem = access("http://10.0.0.1:2379", &nobody, false).unwrap_err();
        assert_eq!(problem.seen, "http://10.0.0.1:2379");
        assert!(problem.remedy.contains("--insecure-http"), "{problem}");
        assert!(access("http://10.0.0.1:2379", &nobody, true).is_ok());
    }

    #[test]
    fn credentials_are_not_sent_in_the_clear() {
        let some = |name: &str| Some(PathBuf::from(name));
        let all = [
            Identity { cacert: some("c"), ..Identity::default() },
            Identity { cert: some("c"), ..Identity::default() },
            Identity { key: some("k"), ..Identity::default() },
            Identity { user: Some("u".to_owned()), ..Identity::default() },
            Identity { password_file: some("p"), ..Identity::default() },
        ];
        for identity in all {
            let problem = access("http://127.0.0.1:2379", &identity, false).unwrap_err();
            assert!(problem.error.contains("credentials are given for plain HTTP"), "{problem}");
        }
        let both = ["https://127.0.0.1:1", "http://127.0.0.1:1"].map(|it| it.parse().unwrap());
        let problem = Access::new(&both, &Identity::default(), true).unwrap_err();
        assert_eq!(problem.seen, "https://127.0.0.1:1 and http://127.0.0.1:1");
    }

    #[test]
    fn a_token_is_not_in_what_is_printed() {
        let access = access("http://127.0.0.1:1", &Identity::default(), false).unwrap();
        access.set_token("very.secret".to_owned());
        assert!(!format!("{access:?}").contains("very.secret"));
    }

    #[test]
    fn half_an_identity_is_refused_with_the_option_that_is_missing() {
        let user = Identity { user: Some("a".to_owned()), ..Identity::default() };
        let problem = access("http://127.0.0.1:1", &user, true).unwrap_err();
        assert!(problem.error.contains("without --password-file"), "{problem}");
        let password = Identity { password_file: Some("p".into()), ..Identity::default() };
        let problem = access("http://127.0.0.1:1", &password, true).unwrap_err();
        assert!(problem.error.contains("without --user"), "{problem}");
    }

    #[test]
    fn a_directory_fills_in_what_the_options_leave_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("user"), "host-a\n").unwrap();
        std::fs::write(folder.path().join("ca.crt"), "").unwrap();
        let given = Identity { cacert: Some("mine".into()), ..Identity::default() };
        let whole = given.or_from(folder.path()).unwrap();
        assert_eq!((whole.cacert, whole.user), (Some("mine".into()), Some("host-a".to_owned())));
        assert_eq!((whole.cert, whole.password_file), (None, None));
        let problem = Identity::default().or_from(&folder.path().join("none")).unwrap_err();
        assert!(problem.seen.contains("none is not a directory"), "{problem}");
    }
}
