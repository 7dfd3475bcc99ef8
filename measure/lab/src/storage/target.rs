//! The target: tgtd in a network namespace, with a portal at the end of each member's wire, and a
//! file as LUN.

use crate::LabError;
use crate::guest::start;
use crate::host::Host;
use std::path::Path;

/// The target's name.
pub(super) const TARGET: &str = "iqn.2026-01.org.millrace:lun";
/// The target's addresses, one on each wire.
pub(super) const PORTALS: [&str; 2] = ["10.70.0.2", "10.71.0.2"];
/// Bytes at the start of the LUN that the guest copies to the place behind them: see
/// millrace/tests/stories/guest/storage.
const COPIED: u64 = 8 << 20;

/// Starts tgtd on a host that has the addresses of its portals. The commands of tgtd and `tgtadm`
/// are each the start of a line.
pub(super) fn serve(
    host: &mut Host,
    [daemon, admin]: &[String; 2],
    [first, second]: [&str; 2],
    lun: &Path,
) -> Result<(), LabError> {
    let lun = lun.display();
    // A tgtd that cannot start never answers, so the attempts are limited.
    let socket = format!("env TGT_IPC_SOCKET={lun}.tgtd");
    start(host, &format!("{socket} {daemon} --foreground --iscsi portal={first}:3260"))?;
    host.shell(&format!(
        "truncate --size=64M {lun}; admin='{socket} {admin} --lld iscsi --op'; \
         for try in $(seq 80); do $admin new --mode portal --param portal={second}:3260 && break; sleep 0.1; done; \
         $admin new --mode target --tid 1 --targetname {TARGET} && \
         $admin new --mode logicalunit --tid 1 --lun 1 --backing-store {lun} && \
         $admin bind --mode target --tid 1 --initiator-address ALL"
    ))
}

/// Fills the part that the guest copies with new random bytes.
///
/// # Errors
/// `dd` fails.
pub(super) fn fill(host: &mut Host, lun: &Path) -> Result<(), LabError> {
    let to = format!("of={} bs={COPIED} count=1 iflag=fullblock conv=notrunc", lun.display());
    host.run(&format!("dd if=/dev/urandom {to}")).map(drop)
}

/// Returns 1 if the copy differs from the original, otherwise 0.
///
/// # Errors
/// The host does not answer.
pub(super) fn wrong(host: &mut Host, lun: &Path) -> Result<f64, LabError> {
    let lun = lun.display();
    match host.run(&format!("cmp --bytes={COPIED} --ignore-initial=0:{COPIED} {lun} {lun}")) {
        Err(LabError::Command { .. }) => Ok(1.0),
        same => same.map(|_| 0.0),
    }
}
