//! `millrace validate`: a feature on against off in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide: activity 1 looks at the default configuration; activities
//! 2 and 3 measure with RSC on and off, alternating under connections that keep running, and other switches in turn with
//! them; then round trips, idle and beside bulk connections. Other features have checks of their own and the same measuring.

use crate::campaign::{Campaign, Part, Point};
use crate::experiment::Experiment;
use crate::experiments::{BUFFER_BYTES, Bulk, Feature, Load, latency, peers};
use crate::options::Options;
use crate::statistics::FEWEST_PAIRS;

/// From so many connections on intervals are a third, and enough for a verdict: to open so many anew for each other switch
/// takes several times as long.
const MANY: u32 = 1000;
/// Most bulk connections beside round trips.
const BESIDE: u32 = 16;

/// All that validates a feature.
pub fn campaign(feature: &'static Feature, options: &Options) -> Campaign {
    let mut bulk = feature.experiment(options.mtu, options.interval, options.stop());
    let idle = latency::experiment(&bulk);
    let mut loaded = idle.clone();
    // In process and between hosts there is our switch only.
    if feature.whole_guide && !options.in_process && options.between.is_none() {
        bulk.arms.extend(peers::arms());
        loaded.arms.extend(latency::peers());
        fewer(&mut loaded, 2);
    }
    let point = |part, load, experiment| Point { feature, part, load, experiment };
    let under = |count: &u32| {
        let mut experiment = bulk.clone();
        if *count >= MANY {
            fewer(&mut experiment, 3);
        }
        let load = Load::bulk(*count);
        experiment.warm_up += load.gathering();
        point(Part::Bulk, load, experiment)
    };
    let counts = options.connections.iter();
    let mut points: Vec<Point> = counts.clone().map(under).collect();
    if feature.whole_guide {
        points.push(point(Part::RoundTrips, Load::RoundTrips(None), idle));
        // A guest in process does one or the other.
        let few = counts.clone().filter(|count| **count <= BESIDE).max().or(counts.min());
        if let Some(connections) = few.copied().filter(|_| !options.in_process) {
            let beside = Bulk { connections, buffer_bytes: BUFFER_BYTES };
            points.push(point(Part::RoundTrips, Load::RoundTrips(Some(beside)), loaded));
        }
    }
    Campaign { name: feature.name, title: feature.title, points }
}

/// One interval of so many, but as many as show a difference.
fn fewer(experiment: &mut Experiment, of: usize) {
    let repetitions = &mut experiment.stop.repetitions;
    *repetitions = repetitions.div_ceil(of).max(FEWEST_PAIRS).min(*repetitions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::rsc;

    #[test]
    fn a_thousand_connections_have_fewer_intervals_and_round_trips_sixteen_beside_them_at_most() {
        let of = |connections: &[u32], in_process: bool| {
            let connections = connections.to_vec();
            let options =
                Options { connections, in_process, repetitions: 14, ..Options::new("".into()) };
            let points = campaign(rsc::FEATURE, &options).points.into_iter();
            let point = |point: Point| (point.load, point.experiment.stop.repetitions);
            points.map(point).collect::<Vec<_>>()
        };
        let beside = |connections| {
            let bulk = Bulk { connections, buffer_bytes: BUFFER_BYTES };
            (Load::RoundTrips(Some(bulk)), 7)
        };
        let bulk = |connections| (Load::bulk(connections), 14);
        let (idle, many) = ((Load::RoundTrips(None), 14), (Load::bulk(1000), 5));
        assert_eq!(of(&[1, 16, 1000], false), [bulk(1), bulk(16), many, idle, beside(16)]);
        assert_eq!(of(&[64], false), [bulk(64), idle, beside(64)]);
        assert_eq!(of(&[64], true), [bulk(64), idle]);
    }
}
