//! `millrace ladder`: what each offload adds to the one before it, for a guest that sends and for
//! one that receives.
//!
//! The steps are those by which FreeBSD's driver for Hyper-V grew: nothing, checksum offload,
//! segmentation (LSO), coalescing (RSC), limits of coalescing. With several queues two more follow:
//! channels, and vRSS. All run in turn under the same connections, so a step's gain is its own.
//!
//! With several queues the port of the vNIC is opened anew for each step, and the uplink has them
//! in all steps, so that only the vNIC's are compared. Channels without vRSS are as on a host that
//! does not distribute: all frames toward the guest come on the first. With vRSS the indirection
//! table spreads them. In both the guest's kernel sends a flow on the queue that it came from, so
//! the table alone decides about both directions. `steer=follow` would keep what the step before
//! left at the guest.

use crate::LabError;
use crate::campaign::{Campaign, Point, REOPENING};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::experiments::{limits, vrss};
use crate::load::{Load, Way};
use crate::options::Options;
use crate::plan::{Arm, Plan};
use crate::report::{Case, Check};
use crate::topology::{Topology, VNIC, WIRE, Wiring};
use ports::link::LinkOffload;
use serde_json::json;
use std::path::PathBuf;

/// Names and labels of the steps, the baseline first.
const STEPS: [(&str, &str); 5] = [
    ("base", "No offloads"),
    ("checksum", "+ checksum offload"),
    ("lso", "+ LSO"),
    ("rsc", "+ RSC"),
    ("limits", "+ RSC limits"),
];

/// Name of the last of [`STEPS`].
const LAST: &str = "limits";

/// Names of the steps that need several queues, in their order.
const CHANNELS: [&str; 2] = ["channels", "vrss"];

/// `millrace ladder`, by the way of the load.
#[derive(Debug)]
struct Ladder(Way);

impl Experiment for Ladder {
    fn description(&self) -> Description {
        Description {
            name: "ladder",
            title: "The ladder of offloads: what each step adds",
            steps: true,
            note: Some(
                "Checksum offload is switched at both ends; without it the receiving guest verifies checksums itself. The guest \
                 does LSO, and RSC works toward the guest, so LSO has an effect when the guest sends and RSC when it receives. The \
                 limits are length-limit 25 and ack-limit 2. With several queues, the last two steps are a vNIC whose frames all come on \
                 the first queue, and one whose indirection table spreads them. The guest sends a flow on the queue that it came from.",
            ),
            wiring: Wiring { way: self.0, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        STEPS.map(|(name, label)| Arm { name: name.into(), label: label.into() }).into()
    }

    fn switch(
        &self,
        topology: &mut Topology,
        daemon: &mut Daemon,
        arm: &str,
    ) -> Result<(), LabError> {
        let names = STEPS.map(|(name, _)| name).into_iter().chain(CHANNELS);
        let height = names.into_iter().position(|name| name == arm).unwrap_or(0);
        let has = |step| height >= step;
        for link in [WIRE, VNIC] {
            topology.host_of(link).set_offloads(link, &[(LinkOffload::TxCsum, has(1))])?;
        }
        topology.guest().set_offloads(VNIC, &[(LinkOffload::Tso, has(2))])?;
        daemon.vnic.set_rsc(has(3))?;
        let (length, ack) = limits::SLIDES;
        daemon.vnic.change(&json!({
            "length-limit": has(4).then_some(length),
            "ack-limit": has(4).then_some(ack),
        }))?;
        if topology.queues > 1 { channels(topology, daemon, has(5), has(6)) } else { Ok(()) }
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Opens the vNIC's port anew, with one queue or with all. Its table spreads frames with vRSS, and
/// leads all of them to the first queue without it.
fn channels(
    topology: &Topology,
    daemon: &mut Daemon,
    several: bool,
    vrss: bool,
) -> Result<(), LabError> {
    vrss::needs_tap(topology)?;
    let uplink = json!({ "queues": topology.queues });
    // Opened with one queue at first, so that neither side has flows on other queues.
    daemon.reopen(&uplink, &json!({ "queues": 1, "steer": null }))?;
    if !several {
        return Ok(());
    }
    daemon.reopen(&uplink, &json!({ "queues": topology.queues, "steer": "rss" }))?;
    daemon.steers_by("rss")?;
    if vrss { Ok(()) } else { daemon.receive_on_first_queue() }
}

impl Options {
    /// Returns the defaults of `millrace ladder`: one connection, or with several queues enough to
    /// reach each of them.
    pub fn ladder(queues: Option<u32>, program: PathBuf) -> Options {
        let options = Options::new(program);
        match queues {
            None => options,
            Some(queues) => Options {
                connections: vec![vrss::CONNECTIONS * queues],
                queues: vec![queues],
                ..options
            },
        }
    }
}

/// Returns the plan of one way of the load; with several queues it has two more steps.
fn plan(experiment: &Ladder, options: &Options) -> Plan {
    let mut plan = experiment.plan(options.mtu, options.interval, options.stop());
    let queues = options.most_queues();
    if queues > 1 {
        let labels = [format!("+ {queues} channels"), "+ vRSS".to_owned()];
        let further = CHANNELS.into_iter().zip(labels);
        plan.arms.extend(further.map(|(name, label)| Arm { name: name.into(), label }));
        plan.settle = REOPENING.max(plan.settle);
    }
    plan
}

/// Returns the campaign of `millrace ladder`: first the guest sends, then it receives.
pub fn campaign(options: &Options) -> Campaign {
    let of = |experiment: &'static Ladder| {
        let plan = plan(experiment, options);
        let counts = options.connections.iter();
        let load = counts.map(|count| Load::bulk(*count));
        load.map(move |load| Point { experiment, load, plan: plan.clone() })
    };
    let points = [&Ladder(Way::FromVnic), &Ladder(Way::ToVnic)].into_iter().flat_map(of).collect();
    Campaign::new(&Ladder(Way::ToVnic), points)
}

/// Proves the steps: a sending guest's frames must grow at the step of LSO and not before, a
/// receiving guest's at that of RSC. Queues are proven by those that carried frames.
fn proof(case: &Case) -> Option<Check> {
    let (key, before, after) = match case.setting.way? {
        Way::FromVnic => ("ingress_frame_bytes", "checksum", "lso"),
        Way::ToVnic | Way::BetweenVnics => ("segments_per_train", "lso", "rsc"),
    };
    let (low, high) = (case.median(before, key)?, case.median(after, key)?);
    let seen = format!("{key} is {low:.2} at the step before and {high:.2} with {after}");
    let is_larger = high > 1.3 * low;
    if !case.order.iter().any(|arm| arm == CHANNELS[0]) {
        return proven(is_larger, seen);
    }
    let (are_as_said, queues) = queues(case)?;
    proven(is_larger && are_as_said, format!("{seen}; {queues}"))
}

/// Returns whether the vNIC's queues were as their steps say, and how they were: one; several, of
/// which a sending guest uses the first; several, all in use in each interval. A receiving guest's
/// kernel may acknowledge on any queue.
fn queues(case: &Case) -> Option<(bool, String)> {
    let steps = [LAST, CHANNELS[0], CHANNELS[1]];
    let [one, channels, vrss] = steps.map(|arm| case.median(arm, "vnic_queues"));
    let (one, channels, vrss) = (one?, channels?, vrss?);
    let silent = case.median(CHANNELS[0], "vnic_silent_queues")?;
    let missed = case.total(CHANNELS[1], "vnic_silent_queues")?;
    let seen = format!(
        "queues of the vNIC {one}, {channels}, {vrss}; carried frames with channels alone: {}, with vRSS: all but {missed} over \
         all intervals",
        channels - silent
    );
    let passed = one == 1.0 && channels > 1.0 && vrss == channels;
    let is_first_alone = case.setting.way != Some(Way::FromVnic) || silent == channels - 1.0;
    Some((passed && is_first_alone && missed == 0.0, seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Values;
    use crate::report::case_of;

    fn names(plan: &Plan) -> Vec<&str> {
        plan.arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    #[test]
    fn without_queues_the_ladder_is_the_one_it_was() {
        let campaign = campaign(&Options::ladder(None, "".into()));
        let usual = ["base", "checksum", "lso", "rsc", "limits"];
        assert!(campaign.points.iter().all(|point| names(&point.plan) == usual));
        assert_eq!(campaign.points[0].load, Load::bulk(1));
    }

    #[test]
    fn channels_and_vrss_follow_in_the_slides_order_and_are_proven_by_their_queues() {
        let campaign = campaign(&Options::ladder(Some(4), "".into()));
        let plan = &campaign.points[0].plan;
        assert_eq!(names(plan)[4..], ["limits", "channels", "vrss"]);
        assert_eq!(campaign.points[0].load, Load::bulk(64));
        let passes = |pairs: [f64; 3], silent: [f64; 2]| {
            let figures = |_, place: usize| {
                let step = place.saturating_sub(4);
                let silent = [0.0, silent[0], silent[1]][step];
                Values::from([
                    ("vnic_queues".to_owned(), pairs[step]),
                    ("vnic_silent_queues".to_owned(), silent),
                    ("ingress_frame_bytes".to_owned(), if place > 1 { 9.0 } else { 1.0 }),
                ])
            };
            let mut case = case_of(plan, 2, figures);
            case.setting.way = Some(Way::FromVnic);
            proof(&case).unwrap().passed
        };
        assert!(passes([1.0, 4.0, 4.0], [3.0, 0.0]));
        assert!(!passes([1.0, 4.0, 4.0], [0.0, 0.0]), "channels alone spread nothing");
        assert!(!passes([1.0, 4.0, 4.0], [3.0, 1.0]), "vRSS leaves no queue silent");
        assert!(!passes([4.0, 4.0, 4.0], [3.0, 0.0]) && !passes([1.0, 4.0, 1.0], [3.0, 0.0]));
    }
}
