//! How each kind of guest is made, in its new directory.

use super::apt::Apt;
use super::initramfs::{initramfs, storage};
use super::world::modules;
use crate::program::{succeeds, words};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::copy;
use std::os::unix::fs::symlink;
use std::path::Path;

/// user-mode Linux before this one panics with vhost-user, or has no way to reconnect.
const UML_WANTED: &str = "7.2";

/// Kernel modules of the guest's storage, in the order in which they are loaded.
const STORAGE_MODULES: [&str; 12] = [
    "scsi_common",
    "scsi_mod",
    "scsi_transport_iscsi",
    "libiscsi",
    "libiscsi_tcp",
    "iscsi_tcp",
    "sd_mod",
    "dm-mod",
    "dm-multipath",
    "dm-round-robin",
    "inet_diag",
    "tcp_diag",
];

/// Kernel modules of a device on the PCI bus, in the order in which they are loaded.
const PCI_MODULES: [&str; 5] =
    ["virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"];

/// Kernel modules of the network, in the order in which they are loaded.
const NETWORK_MODULES: [&str; 3] = ["failover", "net_failover", "virtio_net"];

/// Makes user-mode Linux: the kernel is Debian's newest, its world of this release.
///
/// # Errors
/// Packages cannot be had, or the kernel is too old.
pub(super) fn uml(apt: &Apt, new: &Path) -> Result<()> {
    apt.update("sid")?;
    let found = apt.version_of("user-mode-linux").unwrap_or_default();
    if !succeeds(words("dpkg --compare-versions").args([&found, "ge", UML_WANTED])) {
        let (uri, found) = (apt.uri(), if found.is_empty() { "none" } else { &found });
        bail!("needs user-mode-linux {UML_WANTED} or newer, {uri} has {found}");
    }
    // The C library loads the latter when a thread of it is cancelled.
    apt.download(&["user-mode-linux", "libc6", "libgcc-s1"])?;
    apt.unpack(new)?;
    apt.update(apt.suite())?;
    let modules = modules(&new.join("usr/lib/uml/modules"), &NETWORK_MODULES)?;
    initramfs(apt, new, "initramfs", &modules)?;
    fs::remove_dir_all(new.join("usr/share"))?;
    fs::remove_dir_all(new.join("usr/lib/uml"))?;
    // Where the stories mount their own.
    for name in ["dev", "proc", "run", "tmp"] {
        fs::create_dir_all(new.join(name))?;
    }
    symlink("usr/lib", new.join("lib"))?;
    Ok(symlink("usr/lib64", new.join("lib64"))?)
}

/// Makes a virtual machine: QEMU, the target of its storage, Debian's cloud kernel and its worlds.
///
/// # Errors
/// Packages cannot be had.
pub(super) fn qemu(apt: &Apt, new: &Path) -> Result<()> {
    emulator(apt)?;
    apt.complete("tgt", &[])?;
    apt.unpack(new)?;
    own(new, "tgtd")?;
    own(new, "tgtadm")?;
    let kernel = new.join("kernel");
    apt.download(&[apt.dependency_of("linux-image-cloud-amd64")?])?;
    apt.unpack(&kernel)?;
    fs::copy(image(&kernel)?, new.join("vmlinuz"))?;
    let network = modules(&kernel, &[&PCI_MODULES[..], &NETWORK_MODULES].concat())?;
    initramfs(apt, new, "initramfs", &network)?;
    storage(apt, new, "more", &modules(&kernel, &STORAGE_MODULES)?)?;
    let mut both = File::create(new.join("storage"))?;
    for part in ["initramfs", "more"] {
        copy(&mut File::open(new.join(part))?, &mut both)?;
    }
    fs::remove_dir_all(kernel)?;
    Ok(fs::remove_file(new.join("more"))?)
}

/// Downloads QEMU. Backports has the version that can hot unplug; it is not there for each release
/// at all times.
fn emulator(apt: &Apt) -> Result<()> {
    let package = "qemu-system-x86";
    let backports = format!("{}-backports", apt.suite());
    if apt.update(&format!("{} {backports}", apt.suite())).is_err() {
        apt.update(apt.suite())?;
    }
    apt.complete(package, &["--target-release", &backports]).or_else(|_| apt.complete(package, &[]))
}

/// Makes DPDK's packet generator.
///
/// # Errors
/// Packages cannot be had.
pub(super) fn testpmd(apt: &Apt, new: &Path) -> Result<()> {
    apt.update(apt.suite())?;
    apt.complete("dpdk-dev", &[])?;
    apt.unpack(new)
}

/// Puts a program into usr/bin, where its package has it in usr/sbin.
fn own(new: &Path, program: &str) -> Result<()> {
    let place = new.join("usr/bin").join(program);
    if !place.exists() {
        symlink(format!("../sbin/{program}"), place)?;
    }
    Ok(())
}

/// Returns the kernel in its unpacked package.
fn image(kernel: &Path) -> Result<std::path::PathBuf> {
    let entries = fs::read_dir(kernel.join("boot"))?.filter_map(Result::ok);
    let mut images = entries.filter(|it| it.file_name().to_string_lossy().starts_with("vmlinuz-"));
    let image = images.next().context("needs a kernel, and its package has no /boot/vmlinuz-*")?;
    Ok(image.path())
}
