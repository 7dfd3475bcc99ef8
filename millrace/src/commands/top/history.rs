//! Rates of the last sixty intervals, and their drawing as bars of one line. What was before the
//! program began comes from the daemon's own history, as ports get onto the screen.

use api::body::{HistoryBody, PortBody};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Pictures kept of each port.
pub(super) const KEPT: usize = 60;
/// Bars from the lowest to the highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rates of each port, both directions together.
#[derive(Default)]
pub(super) struct History {
    ports: BTreeMap<String, Rates>,
}

#[derive(Default)]
struct Rates {
    /// Oldest first.
    rates: VecDeque<u64>,
    /// Whether the daemon was asked for those before the first picture.
    asked: bool,
}

impl History {
    /// Adds the ports' present rates, and forgets ports that are gone.
    pub(super) fn add(&mut self, ports: &[PortBody]) {
        let names: BTreeSet<_> = ports.iter().map(|port| port.name.as_str()).collect();
        self.ports.retain(|name, _| names.contains(name.as_str()));
        for port in ports {
            let own = self.ports.entry(port.name.clone()).or_default();
            own.rates.push_back(port.rates.ingress_bits_per_s + port.rates.egress_bits_per_s);
            own.shorten();
        }
    }

    /// Returns whether the daemon is to be asked for the past of a port: once for each.
    pub(super) fn asks(&mut self, port: &str) -> bool {
        let own = self.ports.get_mut(port);
        own.is_some_and(|own| !std::mem::replace(&mut own.asked, true))
    }

    /// Puts the past of a port, oldest first and until now, before what was seen of it.
    pub(super) fn put_before(&mut self, port: &str, past: &[u64]) {
        let Some(own) = self.ports.get_mut(port) else { return };
        let unseen = past.len().saturating_sub(own.rates.len());
        past.iter().take(unseen).rev().for_each(|rate| own.rates.push_front(*rate));
        own.shorten();
    }

    /// Returns the rates of a port as `width` bars, as high as the highest of them.
    pub(super) fn bars(&self, port: &str, width: usize) -> String {
        self.ports.get(port).map(|own| bars(&own.rates, width)).unwrap_or_default()
    }
}

impl Rates {
    fn shorten(&mut self) {
        let surplus = self.rates.len().saturating_sub(KEPT);
        self.rates.drain(..surplus);
    }
}

/// Returns the seconds of the daemon's history that `KEPT` pictures cover, as far as it reaches.
pub(super) fn range_s(every: Duration) -> u64 {
    (KEPT as u64 * every.as_secs()).clamp(1, 86_400)
}

/// Returns the rates in the daemon's history, one for each interval, oldest first. What is not known
/// counts as nothing.
pub(super) fn rates(body: &HistoryBody, every: Duration) -> Vec<u64> {
    let both = body.ingress_bytes.iter().zip(&body.egress_bytes);
    let seconds = body.resolution_s.max(1);
    let bits = |bytes: Option<u64>| bytes.unwrap_or_default().saturating_mul(8) / seconds;
    let all: Vec<_> = both.map(|(from, to)| bits(*from).saturating_add(bits(*to))).collect();
    let at = |back: usize| {
        let values =
            u64::try_from(back).unwrap_or(u64::MAX).saturating_mul(every.as_secs()) / seconds;
        let place = all.len().checked_sub(1)?.checked_sub(usize::try_from(values).ok()?)?;
        all.get(place).copied()
    };
    (0..KEPT).rev().filter_map(at).collect()
}

/// Returns `width` bars, each the mean of as many rates, so that all of them fit.
fn bars(rates: &VecDeque<u64>, width: usize) -> String {
    let together = KEPT.div_ceil(width.max(1));
    let rates: Vec<_> = rates.iter().copied().collect();
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
    let means: Vec<_> = rates.rchunks(together).map(mean).collect();
    let most = means.iter().copied().max().unwrap_or_default();
    let bar = |mean: &u64| {
        let step = u128::from(*mean) * 7 / u128::from(most.max(1));
        let bar = usize::try_from(step).ok().and_then(|step| BARS.get(step).copied());
        if *mean == 0 { ' ' } else { bar.unwrap_or(' ') }
    };
    let bars: String = means.iter().rev().map(bar).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_the_highest_rate_and_end_with_the_newest() {
        let rates = VecDeque::from([0, 1, 4, 8]);
        assert_eq!(bars(&rates, KEPT + 2).trim_start(), "▁▄█");
        assert_eq!(bars(&rates, KEPT + 2).chars().count(), KEPT + 2);
        assert_eq!(bars(&VecDeque::from([0, 0]), 3), "   ");
        assert_eq!(bars(&VecDeque::from([u64::MAX]), 1), "█");
    }

    /// Twelve bars under the head LAST MINUTE were of twelve seconds.
    #[test]
    fn few_bars_are_of_all_rates() {
        let rates: VecDeque<_> = [8; KEPT / 2].into_iter().chain([1; KEPT / 2]).collect();
        assert_eq!(bars(&rates, 4), "██▁▁");
    }

    fn port(name: &str, rate: u64) -> PortBody {
        let mut port: PortBody = serde_json::from_value(serde_json::json!({
            "name": name, "device": "", "role": "vnic", "state": "up", "reason": "", "mtu": 1500,
            "mac": null, "vlan": "untagged", "rsc": "off", "queues": [], "offloads": [],
            "degraded": [], "config": {"name": name, "tap": "tap1"},
            "rates": {"ingress_frames_per_s": 0, "ingress_bits_per_s": 0,
                "egress_frames_per_s": 0, "egress_bits_per_s": 0, "drops_per_s": 0},
        }))
        .unwrap();
        port.rates.egress_bits_per_s = rate;
        port
    }

    #[test]
    fn the_past_comes_once_and_before_what_was_seen() {
        let mut history = History::default();
        assert!(!history.asks("web"), "the port is not known");
        history.add(&[port("web", 8)]);
        assert!(history.asks("web") && !history.asks("web"));
        history.add(&[port("web", 7)]);
        history.put_before("web", &[1, 2, 3, 4]);
        assert_eq!(history.ports["web"].rates, [1, 2, 8, 7]);
        history.put_before("web", &[5; 2 * KEPT]);
        assert_eq!(history.ports["web"].rates.len(), KEPT);
        assert_eq!(history.ports["web"].rates.back(), Some(&7));
        history.put_before("gone", &[1]);
        history.add(&[]);
        history.add(&[port("web", 8)]);
        assert!(history.asks("web"), "a port that comes again is another one");
    }

    #[test]
    fn the_daemons_counts_become_rates_of_the_intervals() {
        let counts = |counts: &[Option<u64>], resolution_s| HistoryBody {
            resolution_s,
            ingress_bytes: counts.to_vec(),
            egress_bytes: vec![Some(0); counts.len()],
            ..HistoryBody::default()
        };
        let second = Duration::from_secs(1);
        assert_eq!(rates(&counts(&[Some(1), None, Some(3)], 1), second), [8, 0, 24]);
        let every = Duration::from_secs(2);
        assert_eq!(rates(&counts(&[Some(1), Some(2), Some(3)], 1), every), [8, 24]);
        // A minute's count serves all intervals in it.
        assert_eq!(rates(&counts(&[Some(60), Some(120)], 60), second * 30), [8, 8, 16, 16]);
        assert_eq!(rates(&counts(&[], 1), second), [0; 0]);
        assert_eq!((range_s(second), range_s(second * 3600)), (60, 86_400));
    }
}
