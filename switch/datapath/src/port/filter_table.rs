//! The guards and rules of a port, compiled from its settings for [the
//! filter](crate::stage::filter).

use crate::port::acl::Acl;
use crate::settings::PortSettings;
use crate::settings::acl::{AclAction, AclRule};
use crate::settings::guard::Guards;
use ports::capture::Direction;
use std::sync::Arc;

/// The guards and rules of a port, compiled from its settings. A part is `None` if it has nothing
/// to check.
#[derive(Clone, Default)]
pub(crate) struct Filter {
    pub(crate) guards: Option<Arc<Guards>>,
    pub(crate) ingress: Option<Arc<Acl>>,
    pub(crate) egress: Option<Arc<Acl>>,
    /// The rules that mark ingress frames.
    pub(crate) marks: Option<Arc<Acl>>,
    /// Whether a guard or rule is about ingress frames.
    pub(crate) asks_ingress: bool,
}

impl Filter {
    /// Compiles a port's guards and rules. Rules that are in `old`, the port's filter so far, keep
    /// their counters.
    pub(crate) fn of(settings: &PortSettings, workers: usize, old: Option<&Filter>) -> Filter {
        let compile = |asked: &dyn Fn(&AclRule) -> bool, old: Option<&Arc<Acl>>| {
            Acl::compile(&settings.acl, asked, workers, old.map(|old| &**old)).map(Arc::new)
        };
        let marks = |rule: &AclRule| matches!(rule.action, AclAction::Mark(_));
        let decides = |direction| move |rule: &AclRule| rule.direction == direction && !marks(rule);
        let guards = &settings.guards;
        let mut filter = Filter {
            guards: (*guards != Guards::default()).then(|| Arc::new(guards.clone())),
            ingress: compile(
                &decides(Direction::Ingress),
                old.and_then(|old| old.ingress.as_ref()),
            ),
            egress: compile(&decides(Direction::Egress), old.and_then(|old| old.egress.as_ref())),
            marks: compile(&marks, old.and_then(|old| old.marks.as_ref())),
            asks_ingress: false,
        };
        filter.asks_ingress =
            filter.guards.is_some() || filter.ingress.is_some() || filter.marks.is_some();
        filter
    }

    /// Returns the frames that each rule of the settings matched.
    pub(crate) fn hits(&self, settings: &PortSettings) -> Vec<u64> {
        let all = [&self.ingress, &self.egress, &self.marks];
        let hits = |rule| all.into_iter().flatten().find_map(|acl| acl.hits(rule));
        settings.acl.iter().map(|rule| hits(rule).unwrap_or_default()).collect()
    }
}
