//! `millrace validate`: a feature on against off in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide: activity 1 looks at the default configuration; activities
//! 2 and 3 measure with RSC on and off, alternating under connections that keep running; then round trips, and the
//! Linux bridge under the same load. Other features have checks of their own and the same measuring.

use crate::campaign::{Campaign, Part, Point};
use crate::experiment::{Arm, Experiment, StopRule};
use crate::experiments::{Feature, Load, latency};
use crate::options::Options;

/// All that validates a feature.
pub fn campaign(feature: &'static Feature, options: &Options) -> Campaign {
    let bulk = feature.experiment(options.mtu, options.interval, options.stop());
    let point = |part, load, experiment| Point { feature, part, load, experiment };
    let counts = options.connections.iter();
    let mut points: Vec<Point> =
        counts.map(|count| point(Part::Bulk, Load::bulk(*count), bulk.clone())).collect();
    if feature.whole_guide {
        points.push(point(Part::RoundTrips, Load::RoundTrips, latency::experiment(&bulk)));
        let first = options.connections.first().copied().unwrap_or(1);
        points.push(point(Part::Peer, Load::bulk(first), peer_experiment(&bulk)));
    }
    Campaign { name: feature.name, title: feature.title, points }
}

/// The same load through another switch has one arm and nothing to alternate with.
fn peer_experiment(bulk: &Experiment) -> Experiment {
    let arm = Arm { name: "linux_bridge".into(), label: "Linux bridge, GRO on".into() };
    let repetitions = (bulk.stop.repetitions / 2).max(1);
    let stop = StopRule { repetitions, least: repetitions.div_ceil(2), ..bulk.stop };
    Experiment { arms: vec![arm], stop, ..bulk.clone() }
}
