//! User-mode Linux: a kernel as a process, with a virtio driver that speaks vhost-user itself.
//! Boots in two seconds.

use crate::guest::{Guest, directory};
use crate::sandbox::run;
use std::path::Path;
use std::process::Command;

/// Boots a guest with a vNIC at each of these sockets: `eth0`, `eth1`, …
pub(crate) fn boot(name: &str, sockets: &[&str]) -> Guest {
    let world = directory("uml").canonicalize().unwrap();
    enter(&world);
    let mut command = Command::new("chroot");
    command.arg(&world).arg("/usr/bin/linux.uml");
    command.args(["mem=192M", "initrd=/initramfs", "con=null", "con0=fd:0,fd:1", "quiet"]);
    command.args(["uml_dir=/run/", &format!("umid={name}")]);
    for (number, socket) in sockets.iter().enumerate() {
        // Device type 1 is a network device (virtio 1.2, section 5).
        command.arg(format!("virtio_uml.device={socket}:1:{number}"));
    }
    Guest::boot(name, &mut command)
}

/// Enters the guest's own world, which has the C library that the kernel was linked with. This
/// story's devices, processes and sockets are mounted there.
fn enter(world: &Path) {
    if world.join("proc/self").exists() {
        return;
    }
    for directory in ["dev", "proc", "run", "tmp"] {
        run(&format!("mount --rbind /{directory} {}/{directory}", world.display()));
    }
}
