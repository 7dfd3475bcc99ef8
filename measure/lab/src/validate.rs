//! `millrace validate`: a feature on against off in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide: activity 1 looks at the default
//! configuration; activities 2 and 3 measure with RSC on and off, alternating under connections
//! that keep running, and other switches in turn with them; then round trips, idle and beside bulk
//! connections. Other features have checks of their own and the same measuring.

use crate::campaign::{Campaign, Point};
use crate::experiments::{Feature, REOPENING, rsc};
use crate::load::{BUFFER_BYTES, Bulk, Load};
use crate::options::Options;
use crate::plan::{Arm, Phase, Plan};
use crate::vnic::Receivers;
use crate::{peers, round_trips};
use statistics::FEWEST_PAIRS;
use std::time::Duration;

/// From so many connections on intervals are a third, and enough for a verdict: to open so many
/// anew for each other switch takes several times as long.
const MANY: u32 = 1000;
/// Most bulk connections beside round trips, and toward a second receiver.
const FEW: u32 = 16;

/// All that validates a feature. Toward a second receiver it is the question alone, and few
/// connections: what other switches do and how long round trips take is known from the first.
pub fn campaign(feature: &'static Feature, options: &Options) -> Campaign {
    let (feature, second) = match options.receivers {
        Some(Receivers::TapGro) => (rsc::TOWARD_GRO, None),
        Some(Receivers::Qemu) => (rsc::TOWARD_QEMU, None),
        Some(Receivers::Both) => (feature, Some(rsc::TOWARD_GRO)),
        Some(Receivers::Tap) | None => (feature, None),
    };
    let mut bulk = feature.experiment(options.mtu, options.interval, options.stop());
    let (alone, idle) = (bulk.clone(), round_trips::plan(&bulk));
    let mut loaded = idle.clone();
    // In process and between hosts there is our switch only.
    if feature.whole_guide && !options.in_process && options.between.is_none() {
        bulk.arms.extend(peers::arms());
        loaded.arms.extend(peers::arms().filter(|arm| peers::setup(&arm.name).coalesces));
        fewer(&mut loaded, 2);
    }
    let mut points: Vec<Point> =
        options.connections.iter().map(|count| under(feature, &bulk, *count)).collect();
    let few = few(&options.connections);
    if feature.whole_guide {
        let trips = |load, experiment| Point { feature, load, plan: experiment };
        points.push(trips(Load::RoundTrips(None), idle));
        // A guest in process does one or the other.
        if let Some(connections) = few.last().copied().filter(|_| !options.in_process) {
            let beside = Bulk { connections, buffer_bytes: BUFFER_BYTES };
            points.push(trips(Load::RoundTrips(Some(beside)), loaded));
        }
    }
    let few = few.into_iter().flat_map(|count| Some(under(second?, &alone, count)));
    points.extend(few);
    Campaign { name: feature.name, title: feature.title, points }
}

/// Bulk connections under an experiment.
pub(crate) fn under(feature: &'static Feature, plan: &Plan, connections: u32) -> Point {
    let (mut plan, load) = (plan.clone(), Load::bulk(connections));
    if connections >= MANY {
        fewer(&mut plan, 3);
    }
    plan.warm_up += load.gathering();
    Point { feature, load, plan }
}

/// `millrace validate`, with arms of these names and labels, each on the one before it, for which
/// ports are opened anew. An interval goes through the phases, where there are any.
pub(crate) fn stepped(
    feature: &'static Feature,
    options: &Options,
    arms: impl Iterator<Item = (&'static str, String)>,
    phases: Vec<Phase>,
) -> Campaign {
    let plain = feature.experiment(options.mtu, options.interval, options.stop());
    let seconds = phases.iter().map(|phase| phase.seconds).reduce(|sum, next| sum + next);
    let plan = Plan {
        arms: arms.map(|(name, label)| Arm { name: name.into(), label }).collect(),
        interval: seconds.map_or(plain.interval, Duration::from_secs_f64),
        phases,
        settle: REOPENING.max(plain.settle),
        ..plain
    };
    let points = options.connections.iter().map(|count| under(feature, &plan, *count));
    Campaign { name: feature.name, title: feature.title, points: points.collect() }
}

/// Those counts that are few, in order; the least where none is.
fn few(connections: &[u32]) -> Vec<u32> {
    let mut counts = connections.to_vec();
    counts.sort_unstable();
    let few = counts.partition_point(|count| *count <= FEW).max(1);
    counts.truncate(few);
    counts
}

/// One interval of so many, but as many as show a difference.
fn fewer(experiment: &mut Plan, of: usize) {
    let repetitions = &mut experiment.stop.repetitions;
    *repetitions = repetitions.div_ceil(of).max(FEWEST_PAIRS).min(*repetitions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::rsc;

    #[test]
    fn a_second_receiver_is_asked_the_question_alone_under_few_connections() {
        let of = |receivers, connections: &[u32]| {
            let connections = connections.to_vec();
            let options = Options { connections, receivers, ..Options::new("".into()) };
            let points = campaign(rsc::FEATURE, &options).points.into_iter();
            let (first, second): (Vec<Point>, Vec<Point>) =
                points.partition(|point| !point.feature.receiver_gro);
            let load = |point: &Point| (point.load, point.plan.arms.len());
            (first.len(), second.iter().map(load).collect::<Vec<_>>())
        };
        let one = |connections| (Load::bulk(connections), 2);
        assert_eq!(of(Some(Receivers::Both), &[16, 64, 1]), (5, vec![one(1), one(16)]));
        assert_eq!(of(Some(Receivers::Both), &[64, 1000]), (4, vec![one(64)]));
        for alone in [None, Some(Receivers::Tap)] {
            assert_eq!(of(alone, &[1]), (3, vec![]));
        }
        assert_eq!(of(Some(Receivers::Qemu), &[1, 16]), (2, vec![]), "no round trips");
        let (none, toward) = of(Some(Receivers::TapGro), &[1]);
        assert!(none == 0 && toward.len() == 3 && toward[0].1 > 2, "{toward:?}");
    }

    #[test]
    fn a_thousand_connections_have_fewer_intervals_and_round_trips_sixteen_beside_them_at_most() {
        let of = |connections: &[u32], in_process: bool| {
            let connections = connections.to_vec();
            let options =
                Options { connections, in_process, repetitions: 14, ..Options::new("".into()) };
            let points = campaign(rsc::FEATURE, &options).points.into_iter();
            let point = |point: Point| (point.load, point.plan.stop.repetitions);
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
