//! Every kind of finding with its severity. Severities are decided nowhere else.
//!
//! `docs/health.md` has the same table; a test compares the two.

use Severity::{Error, Info, Warning};
use api::body::{FindingBody, Severity};
use problem::Problem;

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    WorkerHangs,
    GroupMissing,
    CoreMissing,
    DescriptorsFew,
    DeviceMissing,
    StateNotKept,
    StateSetAside,
    PortBroken,
    UplinkDown,
    PortDown,
    GuestOff,
    SocketHidden,
    PathDown,
    SamePath,
    MemberDown,
    UplinksShareVlan,
    UplinkHasAddress,
    OwnFramesReturn,
    DuplicateMac,
    HeldMacElsewhere,
    MacUnknown,
    DeviceMtu,
    LinkMtu,
    GuestMtu,
    MtuMismatch,
    TooBig,
    Guarded,
    Lonely,
    RscNotOperational,
    UplinkCoalesces,
    LargeReceive,
    HostStackOpen,
    Software,
    XdpLimits,
    KernelHash,
    TeamMtus,
    TeamSpeeds,
    TeamAddresses,
    TeamVlans,
    TeamUnreachable,
    TeamPathMtu,
    TeamApart,
    KernelPathRefused,
    KernelPathPaused,
    ListenerDown,
    ListenerFiltered,
    RestartNeeded,
}

impl Kind {
    /// Returns the row of the table: name and severity.
    const fn row(self) -> (&'static str, Severity) {
        match self {
            Kind::WorkerHangs => ("worker_hangs", Error),
            Kind::GroupMissing => ("group_missing", Error),
            Kind::CoreMissing => ("core_missing", Error),
            Kind::DescriptorsFew => ("descriptors_few", Error),
            Kind::DeviceMissing => ("device_missing", Warning),
            Kind::StateNotKept => ("state_not_kept", Error),
            Kind::StateSetAside => ("state_set_aside", Error),
            Kind::PortBroken => ("port_broken", Error),
            Kind::UplinkDown => ("uplink_down", Error),
            Kind::PortDown => ("port_down", Warning),
            Kind::GuestOff => ("guest_off", Info),
            Kind::SocketHidden => ("socket_hidden", Warning),
            Kind::PathDown => ("path_down", Error),
            Kind::SamePath => ("same_path", Warning),
            Kind::MemberDown => ("member_down", Warning),
            Kind::UplinksShareVlan => ("uplinks_share_vlan", Warning),
            Kind::UplinkHasAddress => ("uplink_has_address", Info),
            Kind::OwnFramesReturn => ("own_frames_return", Error),
            Kind::DuplicateMac => ("duplicate_mac", Error),
            Kind::HeldMacElsewhere => ("held_mac_elsewhere", Warning),
            Kind::MacUnknown => ("mac_unknown", Info),
            Kind::DeviceMtu => ("device_mtu", Warning),
            Kind::LinkMtu => ("link_mtu", Warning),
            Kind::GuestMtu => ("guest_mtu", Warning),
            Kind::MtuMismatch => ("mtu_mismatch", Warning),
            Kind::TooBig => ("too_big", Warning),
            Kind::Guarded => ("guarded", Warning),
            Kind::Lonely => ("isolated_without_uplink", Warning),
            Kind::RscNotOperational => ("rsc_not_operational", Warning),
            Kind::UplinkCoalesces => ("uplink_coalesces", Info),
            Kind::LargeReceive => ("large_receive", Warning),
            Kind::HostStackOpen => ("host_stack_open", Warning),
            Kind::Software => ("offloads_in_software", Info),
            Kind::XdpLimits => ("xdp_limits", Info),
            Kind::KernelHash => ("kernel_hash", Info),
            Kind::TeamMtus => ("team_mtus", Warning),
            Kind::TeamSpeeds => ("team_speeds", Warning),
            Kind::TeamAddresses => ("team_addresses", Warning),
            Kind::TeamVlans => ("team_vlans", Warning),
            Kind::TeamUnreachable => ("team_unreachable", Warning),
            Kind::TeamPathMtu => ("team_path_mtu", Warning),
            Kind::TeamApart => ("team_apart", Info),
            Kind::KernelPathRefused => ("kernel_path_refused", Info),
            Kind::KernelPathPaused => ("kernel_path_paused", Warning),
            Kind::ListenerDown => ("listener_down", Warning),
            Kind::ListenerFiltered => ("listener_filtered", Warning),
            Kind::RestartNeeded => ("restart_needed", Info),
        }
    }

    /// Returns a finding of this kind.
    pub(crate) fn found(self, problem: Problem) -> FindingBody {
        let (kind, severity) = self.row();
        FindingBody { severity, kind: kind.to_owned(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the table in `docs/health.md` are those of the table here, in its order.
    #[test]
    fn the_document_has_each_kind_with_its_severity() {
        let document = include_str!("../../../../docs/health.md");
        let source = include_str!("kind.rs");
        let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
        let told = document.lines().filter(|line| line.starts_with("| `")).map(|line| {
            let mut cells = line.split('|').skip(1).map(cell);
            (cells.next().unwrap(), cells.next().unwrap())
        });
        // Rows as written in this file: a new kind has one, or the crate does not compile.
        let rows =
            source.lines().filter_map(|line| line.split_once("=> (\"")?.1.split_once("\", "));
        let rows = rows.filter_map(|(kind, rest)| Some((kind, rest.strip_suffix("),")?)));
        let rows: Vec<_> =
            rows.map(|(kind, severity)| (kind.to_owned(), severity.to_lowercase())).collect();
        assert!(rows.len() > 20, "{rows:?}");
        assert_eq!(told.collect::<Vec<_>>(), rows);
    }

    #[test]
    fn a_finding_has_the_severity_of_its_kind() {
        let found = Kind::GuestOff.found(Problem::new("port a waits"));
        assert_eq!((found.severity, found.kind.as_str()), (Info, "guest_off"));
    }
}
