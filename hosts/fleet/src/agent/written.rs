//! An answer of this host as last written to etcd, so that it is written only when it changes, and
//! deleted once.

use crate::etcd::Lease;
use problem::Problem;

/// The answer in etcd, if there is one, with its lease.
pub(super) struct Written<A>(Option<(Lease, A)>);

impl<A> Default for Written<A> {
    fn default() -> Written<A> {
        Written(None)
    }
}

impl<A: PartialEq> Written<A> {
    /// Writes the answer unless etcd has it already, and deletes it if `None` is given. Without a
    /// lease nothing is written yet.
    pub(super) fn set(
        &mut self,
        answer: Option<A>,
        lease: Option<Lease>,
        put: impl FnOnce(&A, Lease) -> Result<(), Problem>,
        delete: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let known = |(old, told): &(Lease, A)| lease == Some(*old) && answer.as_ref() == Some(told);
        if self.0.as_ref().is_some_and(known) {
            return Ok(());
        }
        match (answer, lease) {
            (Some(answer), Some(lease)) => {
                put(&answer, lease)?;
                self.0 = Some((lease, answer));
            }
            (None, _) if self.0.is_some() => {
                delete()?;
                self.0 = None;
            }
            _ => {}
        }
        Ok(())
    }
}
