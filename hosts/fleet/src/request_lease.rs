//! Keeps a request in etcd for as long as its command runs, by a lease that the command keeps
//! alive.

use crate::etcd::{Etcd, Lease};
use problem::Problem;
use std::time::{Duration, Instant};

/// The lease's time: how long the request outlives a command that was killed.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is kept alive.
const KEEP: Duration = Duration::from_secs(4);
/// The interval between attempts while etcd does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A request's lease.
pub(crate) struct RequestLease<'a> {
    etcd: &'a Etcd,
    pub(crate) lease: Lease,
    kept: Instant,
}

impl<'a> RequestLease<'a> {
    pub(crate) fn new(etcd: &'a Etcd) -> Result<RequestLease<'a>, Problem> {
        Ok(RequestLease { etcd, lease: etcd.grant(LEASE)?, kept: Instant::now() })
    }

    /// Calls `read`, and keeps the request alive. If etcd does not answer, it tries again until the
    /// lease has run out.
    pub(crate) fn read<T>(
        &mut self,
        read: impl Fn() -> Result<T, Problem>,
        tell: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<T, Problem> {
        loop {
            match self.keep().and_then(|()| read()) {
                Err(problem) if self.kept.elapsed() < LEASE && !stop() => {
                    tell(&problem.error);
                    std::thread::sleep(RETRY_INTERVAL);
                }
                answer => return answer,
            }
        }
    }

    fn keep(&mut self) -> Result<(), Problem> {
        if self.kept.elapsed() < KEEP {
            return Ok(());
        }
        if !self.etcd.keep_alive(self.lease)? {
            return Err(run_out());
        }
        self.kept = Instant::now();
        Ok(())
    }
}

impl Drop for RequestLease<'_> {
    /// Frees the way for the next request at once; if this fails, the lease runs out by itself.
    fn drop(&mut self) {
        let _ = self.etcd.revoke(self.lease);
    }
}

/// Returns 128 random bits in hexadecimal digits, which distinguish a request from others.
pub(crate) fn number() -> Result<String, Problem> {
    let bytes = path_mtu::session::badge();
    let bytes = bytes.map_err(|error| Problem::new("drawing a number at random").seen(error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the problem of a request that is no longer in etcd.
pub(crate) fn run_out() -> Problem {
    Problem::new("the command has lost its request in etcd")
        .seen("its lease has run out, or someone has deleted it")
        .wanted(format!("an etcd that answers within {} s", LEASE.as_secs()))
        .remedy("give the command again")
}
