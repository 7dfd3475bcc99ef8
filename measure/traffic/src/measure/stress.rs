//! Shortages at which the kernel refused TCP memory or queue space: TcpExt in /proc/net/netstat, of
//! the network namespace.

use super::named;

counters! {
    /// Counters, or their differences.
    pub struct Stress {
        /// How often TCP's memory came under pressure (`net.ipv4.tcp_mem`).
        memory_pressures,
        /// Milliseconds under pressure; counted when the pressure ends.
        memory_pressure_ms,
        /// Connections aborted because TCP had no memory at all.
        memory_aborts,
        /// Connection requests that found the accept queue full.
        listen_overflows,
    }
}

impl Stress {
    /// Reads the counters; all are zero if the kernel does not have them.
    pub fn read() -> Stress {
        Stress::parse(&std::fs::read_to_string("/proc/net/netstat").unwrap_or_default())
    }

    fn parse(netstat: &str) -> Stress {
        let number = |name| named(netstat, "TcpExt", name).unwrap_or(0);
        Stress {
            memory_pressures: number("TCPMemoryPressures"),
            memory_pressure_ms: number("TCPMemoryPressuresChrono"),
            memory_aborts: number("TCPAbortOnMemory"),
            listen_overflows: number("ListenOverflows"),
        }
    }

    /// Returns a sentence if memory was short.
    pub(crate) fn memory(&self) -> Option<String> {
        let Stress { memory_pressures, memory_pressure_ms, memory_aborts, .. } = *self;
        (memory_pressures + memory_pressure_ms + memory_aborts > 0).then(|| {
            format!(
                "TCP's memory came under pressure {memory_pressures} times ({memory_pressure_ms} ms) and {memory_aborts} connections were aborted for it: raise net.ipv4.tcp_mem, or use smaller -sb and -rb"
            )
        })
    }

    /// Returns a sentence if connections had to wait to be accepted.
    pub(crate) fn listening(&self) -> Option<String> {
        (self.listen_overflows > 0).then(|| {
            format!(
                "{} connection requests found the queue of a listener full and were repeated: raise net.core.somaxconn",
                self.listen_overflows
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_short_is_said_and_what_was_not_is_not() {
        let netstat = "TcpExt: ListenOverflows TCPMemoryPressures TCPMemoryPressuresChrono TCPAbortOnMemory\n\
                       TcpExt: 3 2 50 1\nIpExt: A\nIpExt: 1\n";
        let stress = Stress::parse(netstat);
        assert!(stress.memory().unwrap().contains("2 times (50 ms) and 1 connections"));
        assert!(stress.listening().unwrap().starts_with("3 connection requests"));
        let nothing = stress.since(&stress);
        assert_eq!((nothing.memory(), nothing.listening()), (None, None));
    }
}
