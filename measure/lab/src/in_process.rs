//! The bench in one process: two user-space TCP stacks as guests of the same switch, on memory
//! ports.
//!
//! It serves machines that allow no namespaces, and tests. The switch is the real one. The guests
//! are smoltcp, whose cost per segment differs from a kernel's: the figures show whether coalescing
//! happens and what it saves such a guest, and say nothing about a kernel.

mod bench;
mod device;
mod guest;

pub(crate) use bench::{InProcess, facts};
