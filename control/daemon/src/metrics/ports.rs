//! Metrics of ports with their queues and guests, and of members of teams.

use super::Scrape;
use super::family::{Families, Histogram, Labels, Named, number, seconds};
use api::body::{
    CountersBody, GuestBody, PortBody, QueueBody, RscCountersBody, StateBody, WaitBody,
    WaitRangeBody,
};
use std::fmt;

/// Name, help, and the counter.
type PortCounter = (Named, fn(&CountersBody) -> u64);
type QueueCounter = (Named, fn(&QueueBody) -> u64);

const PORT_COUNTERS: &[PortCounter] = &[
    (("port_ingress_frames", "Frames taken from the port; a train is one"), |c| c.ingress_frames),
    (("port_ingress_bytes", "Bytes taken from the port"), |c| c.ingress_bytes),
    (("port_ingress_trains", "Ingress frames that were trains already"), |c| c.ingress_trains),
    (("port_ingress_train_segments", "Segments of these trains"), |c| c.ingress_train_segments),
    (("port_egress_frames", "Frames delivered to the port; a train is one"), |c| c.egress_frames),
    (("port_egress_bytes", "Bytes delivered to the port"), |c| c.egress_bytes),
    (("port_egress_trains", "Egress frames that were trains, coalesced here or before"), |c| {
        c.egress_trains
    }),
    (("port_egress_train_segments", "Segments of these trains"), |c| c.egress_train_segments),
    (("port_carried_ingress_frames", "Ingress frames that the kernel carried"), |c| {
        c.carried_ingress_frames
    }),
    (("port_carried_ingress_bytes", "Bytes of these frames"), |c| c.carried_ingress_bytes),
    (("port_carried_egress_frames", "Egress frames that the kernel carried"), |c| {
        c.carried_egress_frames
    }),
    (("port_carried_egress_bytes", "Bytes of these frames"), |c| c.carried_egress_bytes),
    (("port_flooded_frames", "Copies delivered by flooding"), |c| c.flooded_frames),
    (("port_mirrored_frames", "Copies delivered by a mirror"), |c| c.mirrored_frames),
    (("port_segmented_trains", "Trains segmented"), |c| c.segmented_trains),
    (("port_segments", "Segments made from these trains"), |c| c.segments),
    (("port_unfinished_checksums", "Ingress frames with a partial checksum"), |c| {
        c.unfinished_checksums
    }),
    (("port_checksums", "Transport checksums completed in software"), |c| c.checksums),
    (
        (
            "port_evicted_addresses",
            "Addresses learned on the port and evicted by another one learned there",
        ),
        |c| c.evicted_addresses,
    ),
    (("port_returned_frames", "Frames from an uplink with the address of a vNIC"), |c| {
        c.returned_frames
    }),
    (
        (
            "port_unwanted_frames",
            "Frames not delivered because the guest's driver has set that it does not want them",
        ),
        |c| c.unwanted_frames,
    ),
    (("port_path_mtu_messages", "ICMP too-big messages sent to the port"), |c| c.path_mtu_messages),
    (("port_device_lost", "Frames that the device lost, in either direction"), |c| c.device_lost),
    (("rsc_coalesced_packets", "Segments that joined a train"), |c| c.rsc.coalesced_packets),
    (("rsc_coalesced_bytes", "Payload that joined a train"), |c| c.rsc.coalesced_bytes),
    (("rsc_coalescing_events", "Trains of several segments"), |c| c.rsc.coalescing_events),
    (("rsc_coalescing_exceptions", "NDIS aborts"), |c| c.rsc.coalescing_exceptions),
];

/// Upper bounds of the counted train depths.
const DEPTHS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, f64::INFINITY];

impl Scrape {
    fn each_port(&self) -> impl Iterator<Item = (Labels<'_>, &PortBody, &CountersBody)> {
        self.ports.iter().map(|(port, counters)| (vec![("port", &*port.name)], port, counters))
    }

    pub(super) fn encode_ports(&self, out: &mut Families<'_>) -> fmt::Result {
        out.gauges(
            ("port_up", "Whether the port carries frames"),
            self.each_port()
                .map(|(labels, port, _)| (labels, i64::from(port.state == StateBody::Up))),
        )?;
        out.gauges(
            ("port_weight", "Weight by which the port shares congested uplinks"),
            self.each_port().filter_map(|(labels, port, _)| {
                Some((labels, i64::from(port.config.weight.as_ref()?.0)))
            }),
        )?;
        out.gauges(
            ("port_acl_rules", "Rules of the port's ACL"),
            self.each_port().map(|(labels, port, _)| (labels, number(port.config.acl.len()))),
        )?;
        for (named, read) in PORT_COUNTERS {
            let samples = self.each_port();
            out.counters(*named, samples.map(|(labels, _, counters)| (labels, read(counters))))?;
        }
        out.histograms(
            ("port_train_segments", "Segments per frame delivered to the port; 1 if not coalesced"),
            self.each_port().map(|(labels, _, counters)| (labels, depth(&counters.rsc))),
        )?;
        self.encode_reasons(out, ("port_drops", "Frames dropped, by reason"), |counters| {
            counters.drops.iter().map(|(reason, count)| (&**reason, *count)).collect()
        })?;
        self.encode_reasons(out, ("rsc_exceptions", "Ends of trains, by reason"), |counters| {
            let reasons = &counters.rsc.exceptions_by_reason;
            reasons.iter().map(|(reason, count)| (&**reason, *count)).collect()
        })
    }

    fn encode_reasons(
        &self,
        out: &mut Families<'_>,
        named: Named,
        read: fn(&CountersBody) -> Vec<(&str, u64)>,
    ) -> fmt::Result {
        let samples = self.ports.iter().flat_map(|(port, counters)| {
            let sample = |(reason, count)| (vec![("port", &*port.name), ("reason", reason)], count);
            read(counters).into_iter().map(sample)
        });
        out.counters(named, samples)
    }

    pub(super) fn encode_queues(&self, out: &mut Families<'_>) -> fmt::Result {
        let numbers: Vec<String> = (0..self.most_queues()).map(|queue| queue.to_string()).collect();
        let queues = || {
            let queues = self.ports.iter().flat_map(|(port, _)| &port.queues);
            queues.filter_map(|queue| {
                let number = numbers.get(queue.queue)?;
                Some((vec![("port", &*queue.port), ("queue", &**number)], queue))
            })
        };
        out.gauges(
            ("queue_worker", "The worker that serves the queue"),
            queues().map(|(labels, queue)| (labels, number(queue.worker))),
        )?;
        let counters: [QueueCounter; 2] = [
            (("queue_frames", "Frames taken from the queue"), |queue| queue.frames),
            (("queue_bytes", "Bytes taken from the queue"), |queue| queue.bytes),
        ];
        for (named, read) in counters {
            out.counters(named, queues().map(|(labels, queue)| (labels, read(queue))))?;
        }
        out.counters(
            ("queue_busy_seconds", "Time of turns that took frames from the queue"),
            queues().map(|(labels, queue)| (labels, seconds(queue.busy_ns))),
        )?;
        out.histograms(
            ("queue_wait_seconds", "Wait of the queue's frames before they were taken"),
            queues().filter_map(|(labels, queue)| Some((labels, waits(queue.wait.as_ref()?)))),
        )
    }

    fn most_queues(&self) -> usize {
        self.ports.iter().map(|(port, _)| port.queues.len()).max().unwrap_or_default()
    }

    pub(super) fn encode_guests(&self, out: &mut Families<'_>) -> fmt::Result {
        let guests = || {
            self.each_port().filter_map(|(labels, port, _)| Some((labels, port.guest.as_ref()?)))
        };
        let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        out.gauges(
            ("guest_connected", "Whether a guest is connected to the vhost-user port"),
            guests().map(|(labels, guest)| (labels, i64::from(guest.connected))),
        )?;
        out.counters(
            (
                "guest_connections",
                "Times that a guest has connected since the port was opened; all but the first are reconnects",
            ),
            guests().map(|(labels, guest)| (labels, guest.connections)),
        )?;
        out.gauges(
            ("guest_queue_pairs", "Queue pairs that the guest uses; 0 if its driver is not ready"),
            guests().map(|(labels, guest)| (labels, i64::from(guest.queues))),
        )?;
        out.gauges(
            ("guest_memory_bytes", "Mapped memory of the guest"),
            guests().map(|(labels, guest): (_, &GuestBody)| (labels, bytes(guest.memory_bytes))),
        )
    }

    /// Writes each counter of a team's members.
    pub(super) fn encode_teams(&self, out: &mut Families<'_>) -> fmt::Result {
        let samples = self.teams.iter().flat_map(|team| {
            team.members.iter().flat_map(move |member| {
                member.counters.iter().map(move |(name, count)| {
                    let labels = vec![
                        ("port", &*team.port),
                        ("member", &*member.name),
                        ("counter", &**name),
                    ];
                    (labels, *count)
                })
            })
        });
        out.counters(("team_member", "Counters of team members, by name"), samples)
    }
}

/// Returns the histogram of a queue's waits.
fn waits(wait: &WaitBody) -> Histogram {
    let bound = |us: u64| seconds(us * 1000);
    let bucket =
        |range: &WaitRangeBody| (range.up_to_us.map_or(f64::INFINITY, bound), range.frames);
    let count = wait.frames.iter().map(|range| range.frames).sum();
    Histogram {
        sum: seconds(wait.sum_ns),
        count,
        buckets: wait.frames.iter().map(bucket).collect(),
    }
}

/// Returns the histogram of segments per delivered frame. A train counts as one frame, and each
/// segment that joined it counts.
fn depth(rsc: &RscCountersBody) -> Histogram {
    let trains = rsc.train_depth.iter().map(|depth| depth.trains);
    let count: u64 = trains.clone().sum();
    #[allow(clippy::cast_precision_loss, reason = "a sum of the format is a float")]
    let sum = (count + rsc.coalesced_packets) as f64;
    Histogram { sum, count, buckets: DEPTHS.into_iter().zip(trains).collect() }
}
