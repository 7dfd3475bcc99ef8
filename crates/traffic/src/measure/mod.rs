//! What a stretch of time cost this host: processor time, cycles, kernel counters, TCP's own books.
//!
//! Everything here is a sample taken at a moment (`read`) and a difference of two samples. Nothing runs in between.
//! What cannot be measured on this host is a [`Figure`] without a value and with the reason, never a zero.

mod cpu;
mod cycles;
mod figure;
mod kernel;
mod process;
mod stress;
mod tcp_info;

pub use cpu::{CpuSample, CpuUsage, Ticks};
pub use cycles::{CycleCounter, CycleSample, Cycles};
pub use figure::Figure;
pub use kernel::{InterfaceCounters, KernelCounters, KernelDelta, TcpRetransmits, Udp};
pub use process::{AllProcesses, ProcessSample, ProcessUsage};
pub use stress::Stress;
pub use tcp_info::{TcpInfo, TcpTotals, set_pacing_rate};
