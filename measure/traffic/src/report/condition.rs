//! Conditions on this host that may have changed the figures of a run.

use crate::plan::{Length, Plan};
use crate::snapshot::Interval;

/// Stolen processor time from which the report mentions it.
const STEAL_PERCENT: f64 = 1.0;
const FREQUENCY_PERCENT: f64 = 2.0;
/// Load of other processes from which the report mentions it, in percent of one processor.
const OTHER_LOAD_PERCENT: f64 = 20.0;
const BUSY_PERCENT: f64 = 98.0;
const RETRANSMITS_PERCENT: f64 = 5.0;

/// Returns one sentence for each condition that may have changed or limited the figures.
pub(crate) fn of(plan: &Plan, interval: &Interval) -> Vec<String> {
    let all = [
        steal(interval),
        frequency(interval),
        other_load(interval),
        busy(interval),
        retransmits(interval),
        starved(plan, interval),
        interval.stress.memory(),
        interval.stress.listening(),
    ];
    all.into_iter().flatten().collect()
}

fn busy(interval: &Interval) -> Option<String> {
    let busy = interval.cpu.value.as_ref()?.busy_percent;
    (busy >= BUSY_PERCENT).then(|| {
        format!("all processors of this host were busy ({busy:.1} %), which limits the result")
    })
}

fn retransmits(interval: &Interval) -> Option<String> {
    let tcp = &interval.tcp;
    let percent = 100.0 * tcp.retransmits as f64 / tcp.segments_out.max(1) as f64;
    (percent >= RETRANSMITS_PERCENT).then(|| {
        format!(
            "{percent:.0} % of the sent segments were retransmitted: frames are lost on the path"
        )
    })
}

/// Reports an interval that a count of buffers ended: all of them may be in send queues before
/// anything has arrived.
fn starved(plan: &Plan, interval: &Interval) -> Option<String> {
    let (starved, all) = (interval.tcp.starved, interval.tcp.connections);
    (starved > 0 && !matches!(plan.length, Length::Buffers(_))).then(|| {
        format!(
            "{starved} of {all} connections moved nothing in the measured interval: those that lost frames back off while others continue"
        )
    })
}

fn steal(interval: &Interval) -> Option<String> {
    let stolen = interval.cpu.value.as_ref()?.steal_percent;
    (stolen >= STEAL_PERCENT).then(|| {
        format!("the hypervisor gave {stolen:.1} % of this host's processor time to others (steal)")
    })
}

fn frequency(interval: &Interval) -> Option<String> {
    let [Some((low_then, high_then)), Some((low_now, high_now))] = interval.frequency_mhz else {
        return None;
    };
    let (low, high) = (low_then.min(low_now), high_then.max(high_now));
    (low > 0.0 && (high - low) * 100.0 / low >= FREQUENCY_PERCENT)
        .then(|| format!("processors ran between {low:.0} and {high:.0} MHz: cycles per byte by the formula are as inexact"))
}

/// Returns the busy time that was neither this process nor the network stack's interrupts.
fn other_load(interval: &Interval) -> Option<String> {
    let usage = interval.cpu.value.as_ref()?;
    let own = interval.process.value?.percent_of_one_processor;
    let host = (usage.user_percent + usage.system_percent) * usage.processors as f64;
    let other = host - own;
    (other >= OTHER_LOAD_PERCENT)
        .then(|| format!("other processes used {other:.0} % of a processor on this host: Avg. CPU % and cycles/byte include them"))
}
