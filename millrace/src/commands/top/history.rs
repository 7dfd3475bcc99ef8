//! Rates of the last minute or so, and their drawing as bars of one line.

use api::body::PortBody;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pictures kept of each port.
const KEPT: usize = 60;
/// Bars from the lowest to the highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rates of each port, both directions together, oldest first.
#[derive(Default)]
pub(super) struct History {
    ports: BTreeMap<String, VecDeque<u64>>,
}

impl History {
    /// Adds the ports' present rates, and forgets ports that are gone.
    pub(super) fn add(&mut self, ports: &[PortBody]) {
        let names: BTreeSet<_> = ports.iter().map(|port| port.name.as_str()).collect();
        self.ports.retain(|name, _| names.contains(name.as_str()));
        for port in ports {
            let rates = self.ports.entry(port.name.clone()).or_default();
            rates.push_back(port.rates.ingress_bits_per_s + port.rates.egress_bits_per_s);
            if rates.len() > KEPT {
                rates.pop_front();
            }
        }
    }

    /// Returns the last rates of a port as `width` bars, as high as the port's own highest rate.
    pub(super) fn bars(&self, port: &str, width: usize) -> String {
        self.ports.get(port).map(|rates| bars(rates, width)).unwrap_or_default()
    }
}

fn bars(rates: &VecDeque<u64>, width: usize) -> String {
    let most = rates.iter().copied().max().unwrap_or_default();
    let last = rates.iter().skip(rates.len().saturating_sub(width));
    let bar = |rate: &u64| {
        let step = u128::from(*rate) * 7 / u128::from(most.max(1));
        let bar = usize::try_from(step).ok().and_then(|step| BARS.get(step).copied());
        if *rate == 0 { ' ' } else { bar.unwrap_or(' ') }
    };
    let bars: String = last.map(bar).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_the_highest_rate_and_end_with_the_newest() {
        let rates = VecDeque::from([0, 1, 4, 8]);
        assert_eq!(bars(&rates, 6), "   ▁▄█");
        assert_eq!(bars(&rates, 2), "▄█");
        assert_eq!(bars(&VecDeque::from([0, 0]), 3), "   ");
        assert_eq!(bars(&VecDeque::from([u64::MAX]), 1), "█");
    }
}
