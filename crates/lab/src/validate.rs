//! `millrace validate`: a feature on against off in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide: activity 1 looks at the default configuration; activities
//! 2 and 3 measure with RSC on and off, alternating under connections that keep running, and other switches in turn with
//! them; then round trips. Other features have checks of their own and the same measuring.

use crate::campaign::{Campaign, Part, Point};
use crate::experiments::{Feature, Load, latency, peers};
use crate::options::Options;

/// All that validates a feature.
pub fn campaign(feature: &'static Feature, options: &Options) -> Campaign {
    let mut bulk = feature.experiment(options.mtu, options.interval, options.stop());
    let trips = latency::experiment(&bulk);
    // In process and between hosts there is our switch only.
    if feature.whole_guide && !options.in_process && options.between.is_none() {
        bulk.arms.extend(peers::arms());
    }
    let point = |part, load, experiment| Point { feature, part, load, experiment };
    let counts = options.connections.iter();
    let mut points: Vec<Point> =
        counts.map(|count| point(Part::Bulk, Load::bulk(*count), bulk.clone())).collect();
    if feature.whole_guide {
        points.push(point(Part::RoundTrips, Load::RoundTrips, trips));
    }
    Campaign { name: feature.name, title: feature.title, points }
}
