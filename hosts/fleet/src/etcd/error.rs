//! Errors of requests to etcd.

use super::Endpoint;
use problem::Problem;
use serde::Deserialize;

/// gRPC's code `NOT_FOUND`: a lease has expired.
const NOT_FOUND: i32 = 5;
/// gRPC's code `PERMISSION_DENIED`.
const DENIED: i32 = 7;
/// etcd's texts about a token that it does not know, or that it issued before users were changed.
const OF_TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];
/// etcd's text about a request without a user.
pub(crate) const NO_USER: &str = "user name is empty";
/// gRPC's codes of a member that cannot answer although another may. `DEADLINE_EXCEEDED` and
/// `UNAVAILABLE`: it has no leader, or none that answers in time. `INTERNAL`: its gateway lost its
/// own connection, as in a member that has just started.
const OF_MEMBER: [i32; 3] = [4, 14, 13];

/// Why etcd did not answer, or refused.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint answered. The request may have been carried out.
    #[error("{0}")]
    Unreachable(Box<Problem>),
    /// etcd refused, with a reason.
    #[error("{problem}")]
    Refused {
        /// gRPC's code.
        code: i32,
        /// etcd's text, for people.
        problem: Box<Problem>,
    },
}

/// A refusal in the gateway's JSON.
#[derive(Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    code: i32,
    #[serde(default)]
    grpc_code: i32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    error: String,
}

/// A refusal in the answer of a stream.
#[derive(Deserialize)]
struct Streamed {
    error: Refusal,
}

impl Refusal {
    /// Reads an answer that is no success; `None` if it is not etcd's.
    pub(super) fn read(answer: &[u8]) -> Option<Refusal> {
        let streamed = || serde_json::from_slice(answer).map(|it: Streamed| it.error);
        serde_json::from_slice(answer).or_else(|_| streamed()).ok()
    }

    /// Makes a refusal that etcd reports outside an error, with this text.
    pub(super) fn said(text: &str) -> Refusal {
        Refusal { message: text.to_owned(), ..Refusal::default() }
    }

    pub(super) fn error(self) -> EtcdError {
        let code = if self.code == 0 { self.grpc_code } else { self.code };
        let said = if self.message.is_empty() { self.error } else { self.message };
        EtcdError::Refused { code, problem: Box::new(explained(code, &said)) }
    }
}

fn is_denied(code: i32, said: &str) -> bool {
    code == DENIED || said.contains("permission denied")
}

fn explained(code: i32, said: &str) -> Problem {
    if is_denied(code, said) {
        return Problem::new("etcd does not permit this to the user")
            .seen(said)
            .wanted("a host's user for that host's agent, the user `operator` for people")
            .remedy("use the credentials that `millrace fleet bootstrap` wrote for this purpose");
    }
    if said.contains(NO_USER) {
        return Problem::new("etcd wants a user")
            .seen(said)
            .wanted("a user and a password")
            .remedy("give --credentials, or --user and --password-file");
    }
    Problem::new("etcd refused the request")
        .seen(said)
        .remedy("check etcd's log; `etcdctl endpoint health` shows whether it has a quorum")
}

impl EtcdError {
    /// Returns the problem, for people.
    pub fn problem(&self) -> &Problem {
        match self {
            EtcdError::Unreachable(problem) | EtcdError::Refused { problem, .. } => problem,
        }
    }

    /// Whether the requested thing does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, EtcdError::Refused { code: NOT_FOUND, .. })
    }

    /// Whether etcd does not know the token that the request had.
    pub(super) fn is_of_token(&self) -> bool {
        OF_TOKEN.iter().any(|it| self.says(it))
    }

    /// Whether etcd refused the user, or an unauthenticated request.
    pub(super) fn is_of_user(&self) -> bool {
        matches!(self, EtcdError::Refused { code, problem } if is_denied(*code, &problem.seen))
            || self.says(NO_USER)
    }

    /// Whether etcd refused with this text.
    pub(crate) fn says(&self, text: &str) -> bool {
        matches!(self, EtcdError::Refused { problem, .. } if problem.seen.contains(text))
    }

    /// Makes a refusal by this client itself.
    pub(super) fn of(problem: Problem) -> EtcdError {
        EtcdError::Refused { code: 0, problem: Box::new(problem) }
    }

    /// Whether another member may answer although this one did not.
    pub(super) fn is_of_member(&self) -> bool {
        match self {
            EtcdError::Unreachable(_) => true,
            EtcdError::Refused { code, .. } => OF_MEMBER.contains(code),
        }
    }

    pub(super) fn unreachable(endpoints: &[Endpoint], error: &dyn std::fmt::Display) -> EtcdError {
        let all: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        let problem = Problem::new(format!("etcd does not answer at {}", all.join(", ")))
            .seen(error)
            .wanted("a member of etcd 3.4 or newer that has a quorum")
            .remedy("start etcd, or name the client URLs of its members with --etcd");
        EtcdError::Unreachable(Box::new(problem))
    }

    pub(super) fn broken(error: &serde_json::Error) -> EtcdError {
        let problem = Problem::new("etcd's answer cannot be read")
            .seen(error)
            .wanted("JSON of etcd's v3 gateway")
            .remedy("check that --etcd names the client URL of etcd 3.4 or newer");
        EtcdError::Refused { code: 0, problem: Box::new(problem) }
    }
}

impl From<EtcdError> for Problem {
    fn from(error: EtcdError) -> Problem {
        match error {
            EtcdError::Unreachable(problem) | EtcdError::Refused { problem, .. } => *problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error for an answer of etcd 3.4.
    fn refused(answer: &str) -> EtcdError {
        Refusal::read(answer.as_bytes()).unwrap().error()
    }

    #[test]
    fn a_token_that_etcd_does_not_know_is_told_from_a_refusal() {
        let stale = [
            r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
            r#"{"message":"etcdserver: revision of auth store is old","code":3}"#,
        ];
        assert!(stale.iter().all(|answer| refused(answer).is_of_token()));
        let denied = refused(r#"{"message":"etcdserver: permission denied","code":7}"#);
        assert!(!denied.is_of_token() && denied.problem().remedy.contains("credentials"));
        // Maintenance answers with another code and another prefix.
        for denied in [
            r#"{"error":"auth: permission denied","code":2}"#,
            r#"{"error":{"grpc_code":2,"http_code":500,"message":"auth: permission denied"}}"#,
        ] {
            assert!(refused(denied).problem().error.contains("does not permit"), "{denied}");
        }
        assert!(Refusal::read(b"Not Found").is_none());
        let nobody = refused(r#"{"message":"etcdserver: user name is empty","code":3}"#);
        assert!(!nobody.is_of_token() && nobody.problem().remedy.contains("--password-file"));
    }
}
