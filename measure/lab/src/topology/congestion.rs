//! TCP's congestion control over an experiment's links: CUBIC, the default of Linux and of Windows,
//! whatever this machine's default is. It decides more about loss than any switch: BBR's first
//! version ignores loss and keeps every queue full. `validate rate` can ask for another. Routes select it, so it is the same for every
//! program and ends with the namespaces.

use crate::LabError;
use crate::host::Host;

/// The kernel's name of CUBIC.
const CUBIC: &str = "cubic";

/// Returns what TCP uses over the links: CUBIC, or the machine's default if the kernel has no
/// CUBIC.
pub(crate) fn congestion() -> Option<String> {
    let said = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
    let known = said("tcp_available_congestion_control").unwrap_or_default();
    if has_cubic(&known) {
        return Some(CUBIC.to_owned());
    }
    said("tcp_congestion_control").ok().map(|name| name.trim().to_owned())
}

fn has_cubic(known: &str) -> bool {
    known.split_whitespace().any(|name| name == CUBIC)
}

/// Makes the host's connections over a link use the congestion control asked for, or without one
/// CUBIC, if the kernel has it.
pub(super) fn choose(
    host: &mut Host,
    (link, net, station): (&str, u8, u8),
    asked: Option<&str>,
) -> Result<(), LabError> {
    let default = congestion().filter(|name| name == CUBIC);
    let Some(name) = asked.or(default.as_deref()) else { return Ok(()) };
    host.run(&format!(
        "ip route replace 10.{net}.0.0/24 dev {link} proto kernel scope link src 10.{net}.0.{station} congctl {name}"
    ))?;
    host.run(&format!(
        "ip -6 route replace fd00:{net}::/64 dev {link} proto kernel metric 256 congctl {name}"
    ))
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::has_cubic;

    #[test]
    fn cubic_is_known_by_its_whole_name() {
        assert!(has_cubic("reno bbr cubic\n"));
        assert!(!has_cubic("reno cubicx bbr\n") && !has_cubic(""));
    }
}
