//! Logs in: sends name and password for a token, which etcd forgets when it restarts and after five
//! idle minutes.
//!
//! etcd's HTTP gateway cannot take the user from a client certificate, so a user is always proved
//! by a password as well.

use super::access::Login;
use super::{Etcd, EtcdError, exchange};
use crate::secret;
use hyper::body::Bytes;
use problem::Problem;
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Request<'a> {
    name: &'a str,
    password: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
}

/// Sends a request as this client's user. A token that etcd does not know is renewed once: etcd
/// carried nothing out for it. If the new one is refused as well, the caller waits before it tries
/// again, as after any failure.
pub(super) async fn ask(etcd: &Etcd, path: &str, body: Vec<u8>) -> Result<Bytes, EtcdError> {
    let Some(login) = &etcd.access.login else {
        return exchange::ask(etcd, (path, None), body).await;
    };
    let old = etcd.access.token();
    let token = match old.clone() {
        Some(token) => token,
        None => renew(etcd, login, None).await?,
    };
    match exchange::ask(etcd, (path, Some(&token)), body.clone()).await {
        Err(error) if error.is_of_token() && old.is_some() => {
            let token = renew(etcd, login, old).await?;
            exchange::ask(etcd, (path, Some(&token)), body).await
        }
        answer => answer,
    }
}

/// Returns a new token, or the one with which another client of this process has replaced the old
/// one meanwhile.
async fn renew(etcd: &Etcd, login: &Login, old: Option<String>) -> Result<String, EtcdError> {
    if let Some(token) = etcd.access.token().filter(|token| old.as_ref() != Some(token)) {
        return Ok(token);
    }
    let password = secret::password(&login.password_file).map_err(EtcdError::of)?;
    let request = Request { name: &login.user, password: &password };
    let body = serde_json::to_vec(&request).map_err(|error| EtcdError::broken(&error))?;
    let answer = exchange::ask(etcd, ("/v3/auth/authenticate", None), body).await;
    let answer = answer.map_err(|error| of_user(error, login))?;
    let answer: Answer =
        serde_json::from_slice(&answer).map_err(|error| EtcdError::broken(&error))?;
    etcd.access.set_token(answer.token.clone());
    Ok(answer.token)
}

/// Adds the user to an error about a login.
fn of_user(error: EtcdError, login: &Login) -> EtcdError {
    let EtcdError::Refused { code, problem } = error else { return error };
    let (user, file) = (&login.user, login.password_file.display());
    let problem = if problem.seen.contains("authentication is not enabled") {
        Problem::new("etcd asks for no password: anyone who reaches it can change every host")
            .seen(&problem.seen)
            .wanted(format!("an etcd that knows user {user}"))
            .remedy("set it up with `millrace fleet bootstrap`, or leave --user out")
    } else if problem.seen.contains("authentication failed") {
        Problem::new(format!("etcd refuses the password of user {user}"))
            .seen(&problem.seen)
            .wanted(format!("the password of {user} in {file}"))
            .remedy(format!(
                "`millrace fleet bootstrap --rotate` writes a new one; copy it to {file}"
            ))
    } else {
        *problem
    };
    EtcdError::Refused { code, problem: Box::new(problem) }
}

#[cfg(test)]
mod tests {
    use crate::etcd::{Access, Etcd, Identity, fake};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    const STALE: (u16, &str) = (401, r#"{"message":"etcdserver: invalid auth token","code":16}"#);
    const GOOD: (u16, &str) = (200, "{}");

    /// Starts a member that gives these answers in turn, and reports each request: its path, and
    /// its token.
    fn member(answers: Vec<(u16, &'static str)>) -> (String, Receiver<String>) {
        let (tell, told) = channel();
        let mut answers = answers.into_iter();
        let endpoint = fake::member(move |asked| {
            tell.send(format!("{} {}", asked.path, asked.token.as_deref().unwrap_or("-"))).unwrap();
            let (status, body) = answers.next().expect("no more is asked");
            (status, body.to_owned())
        });
        (endpoint, told)
    }

    fn client(endpoint: &str) -> (Etcd, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        crate::secret::write(&path, "secret\n").unwrap();
        let (user, password_file) = (Some("host-a".to_owned()), Some(path));
        let identity = Identity { user, password_file, ..Identity::default() };
        let access = Access::new(&[endpoint.parse().unwrap()], &identity, true).unwrap();
        (Etcd::new(Arc::new(access)).unwrap(), folder)
    }

    #[test]
    fn a_forgotten_token_is_renewed_once_a_request() {
        let [one, two, three] =
            [r#"{"token":"one"}"#, r#"{"token":"two"}"#, r#"{"token":"three"}"#]
                .map(|it| (200, it));
        let (endpoint, told) = member(vec![one, GOOD, STALE, two, GOOD, STALE, three, STALE]);
        let (etcd, _folder) = client(&endpoint);
        let results = [(); 3].map(|()| etcd.get("key").is_ok());
        assert_eq!(results, [true, true, false]);
        let login = "/v3/auth/authenticate -";
        let range = |token: &str| format!("/v3/kv/range {token}");
        let wanted: [&str; 8] = [
            login,
            &range("one"),
            &range("one"),
            login,
            &range("two"),
            &range("two"),
            login,
            &range("three"),
        ];
        assert_eq!(told.try_iter().collect::<Vec<String>>(), wanted);
    }

    #[test]
    fn a_refused_login_names_the_user_and_the_file_and_is_not_repeated() {
        let answer = r#"{"message":"etcdserver: authentication failed, invalid user ID or password","code":3}"#;
        let (endpoint, told) = member(vec![(400, answer), GOOD]);
        let (etcd, folder) = client(&endpoint);
        let error = etcd.get("key").unwrap_err();
        let problem = error.problem();
        assert!(problem.error.contains("refuses the password of user host-a"), "{problem}");
        assert!(problem.wanted.contains(folder.path().to_str().unwrap()), "{problem}");
        assert!(!problem.to_string().contains("secret"));
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn an_etcd_that_asks_for_no_password_is_an_error_to_a_user() {
        let answer = r#"{"message":"etcdserver: authentication is not enabled","code":9}"#;
        let (endpoint, _told) = member(vec![(400, answer)]);
        let error = client(&endpoint).0.get("key").unwrap_err();
        assert!(error.problem().remedy.contains("fleet bootstrap"), "{error}");
    }
}
