//! The initramfs of a guest, and what is laid over it for storage by two paths.

use super::apt::Apt;
use super::world::World;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// What a guest has for storage besides its initramfs.
const STORAGE: [&str; 6] =
    ["open-iscsi", "multipath-tools", "udev", "dmsetup", "iproute2", "ioping"];

/// Makes the world of a guest as a cpio archive, with these kernel modules. Its process 1 reads
/// commands from the console, and ends each with a line of the byte 0x1e and the exit code. Leaves
/// its busybox in the guest's new directory.
///
/// # Errors
/// A package cannot be had, or does not have what it had.
pub(super) fn initramfs(apt: &Apt, new: &Path, name: &str, modules: &[PathBuf]) -> Result<()> {
    let programs = ["bash", "ethtool", "iperf3"];
    let world = World::below(new)?;
    apt.download(&["busybox-static"])?;
    apt.download(&programs)?;
    apt.download(&apt.libraries_of(&programs)?)?;
    apt.unpack(&world.tools)?;
    world.directories(&["dev", "etc", "proc", "run", "sys", "tmp"])?;
    world.programs(&programs)?;
    // It is static.
    let busybox = world.root.join("bin/busybox");
    world.copy(busybox_of(&world), "bin/")?;
    world.modules("order", modules)?;
    fs::copy("millrace/tests/stories/guest/init", world.root.join("init"))?;
    let kept = new.join("busybox");
    fs::copy(busybox, &kept)?;
    world.pack(&kept, &new.join(name))
}

/// Returns the place of busybox in its package, which is another in later releases.
fn busybox_of(world: &World) -> &'static str {
    let places = ["bin/busybox", "usr/bin/busybox"];
    if world.tools.join(places[0]).is_file() { places[0] } else { places[1] }
}

/// Makes what a guest has beside its initramfs for storage by two paths, for the kernel unpacks one
/// archive over another. Needs the busybox of [`initramfs`].
///
/// # Errors
/// A package cannot be had, or does not have what it had.
pub(super) fn storage(apt: &Apt, new: &Path, name: &str, modules: &[PathBuf]) -> Result<()> {
    let world = World::below(new)?;
    apt.download(&STORAGE)?;
    apt.download(&["zlib1g"])?;
    apt.download(&apt.libraries_of(&STORAGE)?)?;
    apt.unpack(&world.tools)?;
    let programs = "iscsid iscsiadm multipath multipathd udevadm dmsetup ip ss ioping";
    world.programs(&programs.split(' ').collect::<Vec<_>>())?;
    // The C library loads it when multipathd cancels a thread.
    world.library("libgcc_s.so.1")?;
    // Where udev's rules and multipathd look for each other, for their libraries and for plug-ins.
    world.directories(&["lib/udev"])?;
    world.link(".", "usr")?;
    world.link("bin", "sbin")?;
    world.link("../lib64", "lib/x86_64-linux-gnu")?;
    world.copy("lib/multipath", "lib/")?;
    world.copy("lib/udev/rules.d", "lib/udev/")?;
    world.copy("lib/udev/scsi_id", "lib/udev/")?;
    world.link("udevadm", "bin/systemd-udevd")?;
    world.modules("storage", modules)?;
    fs::copy("millrace/tests/stories/guest/storage", world.root.join("bin/storage"))?;
    world.pack(&new.join("busybox"), &new.join(name))
}
