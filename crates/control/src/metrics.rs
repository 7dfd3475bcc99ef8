//! All counters in the text format of Prometheus, written on request.
//!
//! Nothing is kept between scrapes: a [`Collector`] reads the workers' own counters, so metrics cost the data path nothing.

use crate::Problem;
use crate::api::Shared;
use crate::body::{CountersBody, PortBody, StateBody, TeamBody, WorkerBody};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// Of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole page.
pub(crate) fn text(shared: &Shared) -> Result<String, Problem> {
    let mut registry = Registry::with_prefix("millrace");
    registry.register_collector(Box::new(Scrape::of(shared)));
    let mut page = String::new();
    text::encode(&mut page, &registry)
        .map_err(|error| Problem::new("writing the metrics").seen(error))?;
    Ok(page)
}

/// Everything at one moment.
#[derive(Debug)]
struct Scrape {
    ports: Vec<(PortBody, CountersBody)>,
    teams: Vec<TeamBody>,
    macs: usize,
    workers: Vec<WorkerBody>,
}

/// Name, help, and the counter.
type PortCounter = (&'static str, &'static str, fn(&CountersBody) -> u64);

const PORT_COUNTERS: &[PortCounter] = &[
    ("port_ingress_frames", "Frames taken from the port; a train is one", |c| c.ingress_frames),
    ("port_ingress_bytes", "Bytes taken from the port", |c| c.ingress_bytes),
    ("port_egress_frames", "Frames delivered to the port; a train is one", |c| c.egress_frames),
    ("port_egress_bytes", "Bytes delivered to the port", |c| c.egress_bytes),
    ("port_flooded_frames", "Copies delivered by flooding", |c| c.flooded_frames),
    ("port_mirrored_frames", "Copies delivered by a mirror", |c| c.mirrored_frames),
    ("port_segmented_trains", "Trains segmented", |c| c.segmented_trains),
    ("port_segments", "Segments made of them", |c| c.segments),
    ("port_unfinished_checksums", "Ingress frames with a partial checksum", |c| {
        c.unfinished_checksums
    }),
    ("port_checksums", "Transport checksums completed in software", |c| c.checksums),
    (
        "port_evicted_addresses",
        "Addresses learned at the port and evicted by another of its own",
        |c| c.evicted_addresses,
    ),
    ("port_path_mtu_messages", "Messages to the port that a packet was too big", |c| {
        c.path_mtu_messages
    }),
    ("port_device_lost", "Frames the device lost, before the switch or after it", |c| {
        c.device_lost
    }),
    ("rsc_coalesced_packets", "Segments that joined a train", |c| c.rsc.coalesced_packets),
    ("rsc_coalesced_bytes", "Payload that joined a train", |c| c.rsc.coalesced_bytes),
    ("rsc_coalescing_events", "Trains of several segments", |c| c.rsc.coalescing_events),
    ("rsc_coalescing_exceptions", "NDIS aborts", |c| c.rsc.coalescing_exceptions),
];

impl Scrape {
    fn of(shared: &Shared) -> Scrape {
        let running = shared.lock();
        let ports = running.counted_ports();
        let (teams, workers) = (running.team_bodies(), running.workers());
        Scrape { ports, teams, macs: running.macs().len(), workers }
    }
}

impl Collector for Scrape {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from(self.macs).unwrap_or(i64::MAX));
        gauge.encode(out.encode_descriptor(
            "macs",
            "Learned addresses",
            None,
            MetricType::Gauge,
        )?)?;
        self.encode_answers(&mut out)?;
        self.encode_up(&mut out)?;
        self.encode_weights(&mut out)?;
        self.encode_teams(&mut out)?;
        for (name, help, read) in PORT_COUNTERS {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (port, counters) in &self.ports {
                let labels = [("port", port.name.as_str())];
                ConstCounter::new(read(counters)).encode(family.encode_family(&labels)?)?;
            }
        }
        self.encode_reasons(&mut out, ("port_drops", "Frames dropped, by reason"), |counters| {
            counters.drops.iter().map(|(reason, count)| (reason.as_str(), *count)).collect()
        })?;
        self.encode_reasons(&mut out, ("rsc_exceptions", "Ends of trains, by reason"), |counters| {
            let reasons = &counters.rsc.exceptions_by_reason;
            reasons.iter().map(|(reason, count)| (reason.as_str(), *count)).collect()
        })
    }
}

impl Scrape {
    fn encode_answers(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the worker answers; if not, its ports carry nothing";
        let mut family = out.encode_descriptor("worker_answers", help, None, MetricType::Gauge)?;
        for WorkerBody { worker, answers, .. } in &self.workers {
            let labels = [("worker", worker.to_string())];
            ConstGauge::new(i64::from(*answers)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_up(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the port carries frames";
        let mut family = out.encode_descriptor("port_up", help, None, MetricType::Gauge)?;
        for (port, _) in &self.ports {
            let up = i64::from(port.state == StateBody::Up);
            ConstGauge::new(up).encode(family.encode_family(&[("port", port.name.as_str())])?)?;
        }
        Ok(())
    }

    fn encode_weights(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Weight by which the port shares uplinks that are short of room";
        let mut family = out.encode_descriptor("port_weight", help, None, MetricType::Gauge)?;
        for (port, _) in &self.ports {
            if let Some(weight) = port.config.weight {
                let labels = [("port", port.name.as_str())];
                ConstGauge::new(i64::from(weight.0)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Each counter of a team's members.
    fn encode_teams(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.teams.is_empty() {
            return Ok(());
        }
        let help = "What was counted at a member of a team, by name";
        let mut family = out.encode_descriptor("team_member", help, None, MetricType::Counter)?;
        for team in &self.teams {
            for member in &team.members {
                for (name, count) in &member.counters {
                    let labels =
                        [("port", &*team.port), ("member", &*member.name), ("counter", &**name)];
                    ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_reasons(
        &self,
        out: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        read: fn(&CountersBody) -> Vec<(&str, u64)>,
    ) -> fmt::Result {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (port, counters) in &self.ports {
            for (reason, count) in read(counters) {
                let labels = [("port", port.name.as_str()), ("reason", reason)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
