//! Watches keys: signals that they change, for as long as its connection lasts.

use super::message::{Number, WatchCreate, WatchLine, WatchRequest};
use super::{Etcd, EtcdError, exchange};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::timeout;

/// Most bytes of a line. etcd sends none that is longer.
const LONGEST: usize = 16 << 20;

/// What a watch signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The watch is established: changes from now on are signalled.
    Begun,
    /// Something changed, up to this revision of etcd.
    Changed(i64),
    /// Revisions before this one were compacted away: their changes are not signalled, so the keys
    /// have to be read.
    Compacted(i64),
}

impl Etcd {
    /// Watches the keys from `begin` up to but not including `end`, starting at etcd's revision
    /// `from` (0: now), until the connection ends or is silent for `silence`, and returns why. It
    /// does not pass on the keys: the caller reads what it needs, and reads before it watches,
    /// because a watch renews no token.
    pub fn watch(
        &self,
        (begin, end): (&str, &str),
        from: i64,
        silence: Duration,
        mut tell: impl FnMut(Watched),
    ) -> EtcdError {
        let create_request = WatchCreate {
            key: begin.to_owned(),
            range_end: end.to_owned(),
            start_revision: Number(from),
        };
        let request = WatchRequest { create_request };
        let token = self.access.token();
        let watching = async {
            let body = serde_json::to_vec(&request).map_err(|error| EtcdError::broken(&error))?;
            let (answer, connection) =
                exchange::begin(self, ("/v3/watch", token.as_deref()), body).await?;
            let ended = self.lines(answer, silence, &mut tell).await;
            connection.abort();
            ended
        };
        match self.runtime.block_on(watching).inspect_err(|error| self.turn_away(error)) {
            Err(error) => error,
            Ok(()) => EtcdError::unreachable(&self.access.endpoints, &"the watch ended"),
        }
    }

    /// Reads the answer line by line. Returns `Ok` when it has ended.
    async fn lines(
        &self,
        mut answer: Incoming,
        silence: Duration,
        tell: &mut impl FnMut(Watched),
    ) -> Result<(), EtcdError> {
        let lost =
            |error: &dyn std::fmt::Display| EtcdError::unreachable(&self.access.endpoints, error);
        let mut pending = Vec::new();
        loop {
            // The bytes before have no end of a line.
            let known = pending.len();
            let frame = match timeout(silence, answer.frame()).await {
                Err(error) => return Err(lost(&error)),
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => frame.map_err(|error| lost(&error))?,
            };
            pending.extend_from_slice(&frame.into_data().unwrap_or_default());
            if let Some(last) = pending[known..].iter().rposition(|byte| *byte == b'\n') {
                let rest = pending.split_off(known + last + 1);
                pending.split(|byte| *byte == b'\n').try_for_each(|line| read(line, tell))?;
                pending = rest;
            }
            if pending.len() > LONGEST {
                return Err(lost(&"a line of the watch is longer than 16 MiB"));
            }
        }
    }
}

/// Reads one line. Fails if etcd cancelled the watch, after it has signalled a compaction.
fn read(line: &[u8], tell: &mut impl FnMut(Watched)) -> Result<(), EtcdError> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let line: WatchLine =
        serde_json::from_slice(line).map_err(|error| EtcdError::broken(&error))?;
    if let Some(refusal) = line.error {
        return Err(refusal.error());
    }
    let Some(result) = line.result else { return Ok(()) };
    if result.compact_revision.0 > 0 {
        tell(Watched::Compacted(result.compact_revision.0));
    }
    if result.canceled {
        return Err(super::error::Refusal::said(&result.cancel_reason).error());
    }
    tell(if result.created { Watched::Begun } else { Watched::Changed(result.header.revision) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> (Vec<Watched>, bool) {
        let mut told = Vec::new();
        let all = lines.iter().try_for_each(|line| read(line.as_bytes(), &mut |it| told.push(it)));
        (told, all.is_ok())
    }

    #[test]
    fn begin_change_and_compaction_are_signalled() {
        let created = r#"{"result":{"header":{"revision":"4"},"created":true}}"#;
        let event = r#"{"result":{"header":{"revision":"5"},"events":[{"kv":{"key":"Zm9v"}}]}}"#;
        assert_eq!(told(&[created, event]), (vec![Watched::Begun, Watched::Changed(5)], true));
        let gone =
            r#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#;
        assert_eq!(told(&[gone]), (vec![Watched::Compacted(7)], false));
        let error = r#"{"error":{"grpc_code":14,"message":"no leader"}}"#;
        assert_eq!((told(&[error]), told(&["{"])), ((vec![], false), (vec![], false)));
    }
}
