//! The bench in one process: two user-space TCP stacks as guests of the same switch, on memory
//! ports.
//!
//! For hosts that allow no namespaces, and for tests. The switch is the real one; the guests are
//! smoltcp, whose cost per segment is its own, so the figures say whether coalescing happens and
//! what it saves *such* a guest, and nothing about a kernel.

mod bench;
mod device;
mod guest;

pub(crate) use bench::{InProcess, facts};
