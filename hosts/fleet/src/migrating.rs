//! `fleet move --migrate-with`: moves a port together with the virtual machine behind it.
//!
//! The destination prepares the port, a program migrates the guest, and the claim follows. Progress
//! is in etcd, so after a failed step the same command continues from there. The program runs again
//! unless it has succeeded.

use crate::Name;
use crate::moving::{find, find_target, look, move_port};
use crate::store::{HostRecord, Store};
use api::body::Severity;
use config::PortName;
use problem::Problem;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Moves a port to a host, and its guest by `program`, which is called with the port's name, the
/// host that has it and the destination. `timeout` is how long the destination may take to prepare
/// the port, and then to claim it. `tell` gets lines that report progress.
///
/// # Errors
/// Fails if the port is no claimed vhost-user port, the destination cannot have it or takes too
/// long, the program fails, or etcd does not answer.
pub fn migrate_port(
    store: &Store,
    (port, host): (&PortName, &Name),
    program: &Path,
    timeout: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Problem> {
    let in_force = store.in_force()?;
    let found = find(&in_force.model, port)?;
    if found.vhost_user.is_none() {
        return Err(Problem::new(format!("port {port} has no guest that can be migrated"))
            .seen("a TAP device")
            .wanted("a vhost-user port")
            .remedy("move it without --migrate-with"));
    }
    find_target(store, &in_force, (found, host))?;
    let claims = &in_force.claims;
    let Some(source) = claims.owner(found.mac).map(|claim| claim.host.clone()) else {
        return Err(Problem::new(format!("port {port} is on no host that its guest could leave"))
            .wanted("a port that a host has claimed")
            .remedy("move it without --migrate-with"));
    };
    let is_for = |hosts: &BTreeMap<String, Name>| hosts.get(port.as_str()) == Some(host);
    let has_moved = is_for(&claims.coming) && is_for(&claims.carriers);
    if source != *host && !has_moved {
        store.prepare(port, host)?;
        tell(&format!("host {host} prepares port {port}"));
        let ready = look(timeout, || is_prepared(store, port, host));
        if let Err(problem) = ready
            .and_then(|()| migrate(program, [port.as_str(), source.as_str(), host.as_str()], tell))
        {
            // Makes the destination remove the port again, as no guest runs there.
            store.end_preparation(port)?;
            return Err(problem);
        }
        tell(&format!("host {source} gives port {port} up"));
    }
    move_port(store, port, host, false, timeout)
}

/// Checks whether the host's switch has the port. Returns the likely reason if not.
fn is_prepared(store: &Store, port: &PortName, host: &Name) -> Result<Option<Problem>, Problem> {
    let records = store.hosts()?;
    let record = records.iter().find(|record| record.host.name == *host);
    let status = record.and_then(|record| record.status.as_ref());
    if status.is_some_and(|status| status.prepared.contains(port)) {
        return Ok(None);
    }
    let problem = Problem::new(format!("host {host} has not prepared port {port}"))
        .seen(record.map_or_else(|| "no such host".to_owned(), errors))
        .wanted("its switch with the port, at which a guest can arrive")
        .remedy("see `millrace fleet status`; the guest was not touched, and the move can be tried again");
    Ok(Some(problem))
}

/// Returns the host's errors, which may keep it from preparing a port.
fn errors(record: &HostRecord) -> String {
    let Some(status) = &record.status else { return "its agent is away".to_owned() };
    let errors = status.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<&str> = errors.map(|finding| finding.problem.error.as_str()).collect();
    if errors.is_empty() { "no error is reported".to_owned() } else { errors.join("; ") }
}

/// Runs the program, and keeps its output apart from this command's.
fn migrate(
    program: &Path,
    arguments: [&str; 3],
    tell: &mut dyn FnMut(&str),
) -> Result<(), Problem> {
    let line = format!("{} {}", program.display(), arguments.join(" "));
    tell(&format!("running {line}"));
    let failed = |seen: String| {
        Problem::new(format!("the guest of port {} was not migrated", arguments[0]))
            .seen(seen)
            .wanted(format!("{line} to exit with 0"))
            .remedy(
                "see what it printed; the port stays where it is, and the move can be tried again",
            )
    };
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_port_and_both_hosts_and_its_failure_says_that_nothing_moved() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::os::unix::fs::symlink("/usr/bin/test", &program).unwrap();
        let run = |arguments| migrate(&program, arguments, &mut |_| ());
        assert_eq!(run(["vm", "!=", "vm2"]), Ok(()));
        let problem = run(["vm", "=", "vm2"]).unwrap_err();
        assert!(problem.seen.contains("exit status: 1"), "{problem}");
        assert!(problem.wanted.contains("/program vm = vm2"), "{problem}");
        let missing = migrate(Path::new("/nowhere/it"), ["vm", "a", "b"], &mut |_| ()).unwrap_err();
        assert!(missing.seen.contains("No such file"), "{missing}");
    }
}
