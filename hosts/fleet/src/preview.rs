//! Computes the effects of applying a model.

use crate::agent::GONE_BACK;
use crate::configuration::Host;
use crate::difference::{Change, difference};
use crate::model::Model;
use crate::owners::check_owners;
use crate::plan::{
    HostPlan, Unfit, check_without_agent, hosts_without_agent, plan, plan_unless_unfit,
};
use crate::store::{Desired, HostRecord, Phase, Store};
use crate::{Name, store};
use problem::Problem;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A preview of applying a model.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// The revision that the model is compared with; 0 if none was applied yet.
    pub base: u64,
    /// The differences from that revision.
    pub changes: Vec<Change>,
    /// The plan of each registered host.
    pub hosts: Vec<HostPlan>,
    /// Hosts that are away. They follow when their agents return.
    pub away: Vec<Name>,
    /// Hosts that have no valid configuration, now or by the model.
    pub unfit: Vec<Unfit>,
    /// Hosts that ports name and no agent has registered.
    pub without_agent: Vec<Name>,
    /// Hosts that a roll-out has to reach: they change from their current configuration or from the
    /// base, or are held.
    #[serde(skip)]
    pub(crate) reached: Vec<Name>,
    /// The hosts to reach that have the model already, from a roll-out that was not completed.
    #[serde(skip)]
    pub(crate) ahead: Vec<Name>,
    #[serde(skip)]
    pub(crate) records: Vec<HostRecord>,
    #[serde(skip)]
    pub(crate) desired: store::Read<Desired>,
}

impl Preview {
    /// Whether the model is in force on all hosts.
    pub fn is_in_force(&self) -> bool {
        let settled = self.desired.document.as_ref().is_none_or(|it| it.phase == Phase::Done);
        settled && self.changes.is_empty() && !self.records.iter().any(is_held)
    }
}

/// Compares a model with the desired state of the fleet's hosts.
///
/// # Errors
/// Fails if the model breaks a rule, or etcd cannot be read.
pub fn preview(store: &Store, model: &Model) -> Result<Preview, Problem> {
    model.check()?;
    let desired = store.desired()?;
    let base = desired.document.as_ref().map_or(0, Desired::base);
    let records = store.hosts()?;
    let mut models = BTreeMap::from([(base, store.revision(base)?.model)]);
    let number =
        |record: &HostRecord| desired.document.as_ref().map_or(0, |it| it.of(&record.host.name));
    for number in records.iter().map(number) {
        if let Entry::Vacant(place) = models.entry(number) {
            place.insert(store.revision(number)?.model);
        }
    }
    let claimed = store.claims()?.claimed(models.values().chain([model]));
    let (mut hosts, mut unfit) = (Vec::new(), Vec::new());
    let (mut reached, mut ahead) = (Vec::new(), Vec::new());
    for record in &records {
        let now = plan_unless_unfit(&models[&number(record)], model, &record.host, &claimed)?;
        let now = match now {
            Ok(now) => now,
            Err(it) => {
                unfit.push(it);
                continue;
            }
        };
        let base = plan(&models[&base], model, &record.host, &claimed)?;
        if !now.steps.is_empty() || !base.steps.is_empty() || is_held(record) {
            reached.push(record.host.name.clone());
        }
        if now.steps.is_empty() && !base.steps.is_empty() {
            ahead.push(record.host.name.clone());
        }
        hosts.push(now);
    }
    models.values().try_for_each(|before| check_owners(before, model, &claimed))?;
    let known: Vec<Host> = records.iter().map(|record| record.host.clone()).collect();
    let without_agent = hosts_without_agent(model, &known);
    check_without_agent(model, &without_agent)?;
    let before = models.remove(&base).unwrap_or_default();
    let is_away = |record: &&HostRecord| record.status.is_none();
    Ok(Preview {
        base,
        changes: difference(&before, model),
        away: records.iter().filter(is_away).map(|it| it.host.name.clone()).collect(),
        unfit,
        without_agent,
        reached,
        ahead,
        hosts,
        records,
        desired,
    })
}

/// Whether a host is held because etcd went back to an older state. It then follows only a revision
/// applied since.
fn is_held(record: &HostRecord) -> bool {
    let findings = record.status.iter().flat_map(|status| &status.findings);
    findings.into_iter().any(|finding| finding.kind == GONE_BACK)
}
