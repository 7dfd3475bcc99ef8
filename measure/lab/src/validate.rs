//! `millrace validate rsc`: Microsoft's validation guide in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide. Activity 1 checks the default
//! configuration. Activities 2 and 3 measure with RSC on and off, alternating while connections
//! keep running, and with other switches in turn. Then follow round trips, idle and beside bulk
//! connections. Other features have their own checks and the same measurements.

use crate::campaign::{Campaign, Point, fewer};
use crate::experiment::Experiment;
use crate::experiments::rsc::Rsc;
use crate::load::{BUFFER_BYTES, Bulk, Load};
use crate::options::Options;
use crate::plan::Arm;
use crate::vnic::Receivers;
use crate::{peers, round_trips};

/// Most bulk connections beside round trips, and toward a second receiver.
const FEW: u32 = 16;

/// Intervals per arm of round trips beside bulk connections in a brief campaign: the fewest with
/// which a verdict alone holds at 99 %.
const BRIEF_TRIPS: usize = 8;

/// Returns all points of the guide. Toward a second receiver only RSC is compared, under few
/// connections: other switches and round trips are known from the first receiver.
pub fn campaign(options: &Options) -> Campaign {
    let (rsc, second): (&'static Rsc, Option<&'static Rsc>) = match options.rsc.receivers {
        Some(Receivers::TapGro) => (&Rsc::TowardGro, None),
        Some(Receivers::Qemu) => (&Rsc::TowardQemu, None),
        Some(Receivers::Both) => (&Rsc::Plain, Some(&Rsc::TowardGro)),
        Some(Receivers::Tap) | None => (&Rsc::Plain, None),
    };
    let whole_guide = rsc.description().whole_guide;
    let mut bulk = rsc.plan(options.mtu, options.interval, options.stop());
    let (alone, idle) = (bulk.clone(), round_trips::plan(&bulk));
    let mut loaded = idle.clone();
    // In process and between hosts only Millrace runs.
    if whole_guide && !options.rsc.in_process && options.existing_hosts.is_none() {
        bulk.arms.extend(peers::arms(options.rsc.brief));
        // Queues beside bulk connections are looked at for the switches that coalesce in the
        // kernel.
        let coalesces = |arm: &Arm| peers::setup(&arm.name).coalesces;
        loaded.arms.extend(peers::arms(options.rsc.brief).filter(coalesces));
        match options.rsc.brief {
            true => loaded.stop.repetitions = loaded.stop.repetitions.min(BRIEF_TRIPS),
            false => fewer(&mut loaded, 2),
        }
    }
    let mut points: Vec<Point> =
        options.connections.iter().map(|count| Point::bulk(rsc, &bulk, *count)).collect();
    let few = few(&options.connections);
    if whole_guide {
        let trips = |load, plan| Point { experiment: rsc, load, plan };
        if !options.rsc.brief {
            points.push(trips(Load::RoundTrips(None), idle));
        }
        // A guest in process carries either bulk connections or round trips.
        if let Some(connections) = few.last().copied().filter(|_| !options.rsc.in_process) {
            let beside = Bulk::new(connections, BUFFER_BYTES);
            points.push(trips(Load::RoundTrips(Some(beside)), loaded));
        }
    }
    let few = few.into_iter().flat_map(|count| Some(Point::bulk(second?, &alone, count)));
    points.extend(few);
    Campaign::new(rsc, points)
}

/// Returns the counts up to [`FEW`] in order, or the least count if all are larger.
fn few(connections: &[u32]) -> Vec<u32> {
    let mut counts = connections.to_vec();
    counts.sort_unstable();
    let few = counts.partition_point(|count| *count <= FEW).max(1);
    counts.truncate(few);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RscOptions;
    use std::time::Duration;

    #[test]
    fn a_second_receiver_is_asked_the_question_alone_under_few_connections() {
        let of = |receivers, connections: &[u32]| {
            let connections = connections.to_vec();
            let rsc = RscOptions { receivers, ..RscOptions::default() };
            let options = Options { connections, rsc, ..Options::new("".into()) };
            let points = campaign(&options).points.into_iter();
            let (first, second): (Vec<Point>, Vec<Point>) =
                points.partition(|point| !point.experiment.description().wiring.receiver_gro);
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
    fn a_brief_campaign_has_three_arms_and_takes_thirty_seconds_at_most() {
        let points = campaign(&Options::new("".into()).brief()).points;
        let beside = Load::RoundTrips(Some(Bulk::new(16, BUFFER_BYTES)));
        let loads: Vec<Load> = points.iter().map(|point| point.load).collect();
        assert_eq!(loads, [Load::bulk(1), Load::bulk(16), beside]);
        for point in &points {
            let arms: Vec<&str> = point.plan.arms.iter().map(|arm| arm.name.as_str()).collect();
            assert_eq!(arms, ["on", "off", "linux_bridge"]);
        }
        let intervals: Vec<usize> =
            points.iter().map(|point| point.plan.stop.repetitions).collect();
        assert_eq!(intervals, [12, 12, 8]);
        let length: Duration = points.iter().map(|point| point.plan.length()).sum();
        assert!(length < Duration::from_secs(30), "{length:?}");
    }

    #[test]
    fn a_thousand_connections_have_fewer_intervals_and_round_trips_sixteen_beside_them_at_most() {
        let of = |connections: &[u32], in_process: bool| {
            let rsc = RscOptions { in_process, ..RscOptions::default() };
            let connections = connections.to_vec();
            let options = Options { connections, rsc, repetitions: 14, ..Options::new("".into()) };
            let points = campaign(&options).points.into_iter();
            let point = |point: Point| (point.load, point.plan.stop.repetitions);
            points.map(point).collect::<Vec<_>>()
        };
        let beside = |connections| {
            let bulk = Bulk::new(connections, BUFFER_BYTES);
            (Load::RoundTrips(Some(bulk)), 7)
        };
        let bulk = |connections| (Load::bulk(connections), 14);
        let (idle, many) = ((Load::RoundTrips(None), 14), (Load::bulk(1000), 5));
        assert_eq!(of(&[1, 16, 1000], false), [bulk(1), bulk(16), many, idle, beside(16)]);
        assert_eq!(of(&[64], false), [bulk(64), idle, beside(64)]);
        assert_eq!(of(&[64], true), [bulk(64), idle]);
    }
}
