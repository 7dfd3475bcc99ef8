//! The cost of an interval to this host: processor time, cycles, kernel and TCP counters.
//!
//! Everything here is a sample taken at a moment (`read`) and a difference of two samples; nothing
//! runs in between. A number that cannot be measured on this host is a [`Figure`] without a value
//! and with the reason, never a zero.

/// Defines a struct of counters with `since`, which returns what was added to each since an earlier
/// reading.
macro_rules! counters {
    ($(#[$about:meta])* $visible:vis struct $name:ident { $($(#[$what:meta])* $counter:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $visible struct $name {
            $($(#[$what])* $visible $counter: u64,)+
        }

        impl $name {
            /// Returns what was added since an earlier reading. Kernel counters may run backwards,
            /// and are 0 then.
            $visible fn since(&self, earlier: &$name) -> $name {
                $name { $($counter: self.$counter.saturating_sub(earlier.$counter),)+ }
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$counter += other.$counter;)+
            }
        }
    };
}
pub(crate) use counters;

mod cpu;
mod cycles;
mod figure;
mod kernel;
mod machine;
mod process;
mod stress;
mod tcp_info;

pub use cpu::{Busiest, CpuSample, CpuUsage, online};
pub use cycles::{CycleCounter, CycleSample, Cycles};
pub use figure::Figure;
pub use kernel::{InterfaceCounters, KernelCounters, KernelDelta, TcpRetransmits, Udp, named};
pub use machine::Machine;
pub use process::{AllProcesses, ProcessSample, ProcessUsage};
pub use stress::Stress;
pub use tcp_info::{TcpInfo, TcpTotals, set_largest_segment, set_pacing_rate};
