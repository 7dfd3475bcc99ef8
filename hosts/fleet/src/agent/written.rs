//! An answer of this host as etcd has it, so that it is written only when it changes, and deleted
//! once.

use crate::etcd::Lease;
use problem::Problem;

/// What etcd has, and under which lease.
pub(super) struct Written<A>(Option<(Lease, A)>);

impl<A> Default for Written<A> {
    fn default() -> Written<A> {
        Written(None)
    }
}

impl<A: PartialEq> Written<A> {
    /// Has etcd know the answer, unless it does; none: etcd is to have none. Without a lease
    /// nothing is written yet.
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
