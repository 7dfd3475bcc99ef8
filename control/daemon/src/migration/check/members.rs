//! Members of a host's teams with different MTUs: no probe need find them, since packets leave by
//! one member at a time.

use super::{Finding, HostExport};
use api::body::TeamBody;
use problem::Problem;

/// Findings about the members of a host's teams, whatever guest moves. `whose` is the host, in
/// words.
pub fn members(host: &HostExport, whose: &str) -> Vec<Finding> {
    let of_team = |team: &TeamBody| {
        let known = team.members.iter().filter(|member| member.mtu > 0);
        let mtus: Vec<_> = known.map(|member| (member.name.as_str(), member.mtu)).collect();
        let (most, least) = (mtus.iter().map(|it| it.1).max()?, mtus.iter().map(|it| it.1).min()?);
        (most != least).then(|| finding(whose, &team.port, &mtus, most))
    };
    host.teams.iter().filter_map(of_team).collect()
}

fn finding(whose: &str, team: &str, mtus: &[(&str, u16)], most: u16) -> Finding {
    let seen: Vec<String> = mtus.iter().map(|(name, mtu)| format!("{name}: {mtu}")).collect();
    let narrow = mtus.iter().filter(|(_, mtu)| *mtu < most);
    let commands: Vec<String> =
        narrow.map(|(name, _)| format!("`ip link set {name} mtu {most}`")).collect();
    Finding {
        port: String::new(),
        network: None,
        about: "member-mtu".to_owned(),
        problem: Problem::new(format!("{whose}: members of team {team} have different MTUs"))
            .seen(seen.join(", "))
            .wanted("the same MTU on all members")
            .remedy(format!("{} on {whose}", commands.join(" and "))),
    }
}
