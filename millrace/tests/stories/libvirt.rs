//! libvirt: the output of `millrace port show --libvirt`, in a domain around it, is valid by
//! libvirt's own schema. A tutorial has it started by a libvirtd of the story's own.

use crate::heard::Heard;
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::{Switch, millrace};
use std::fs::{self, File};
use std::process::{Child, Command, Output};
use waiting::until;

/// Directories that libvirtd keeps its state in, and its configuration. Each is one of the story's
/// own. libvirtd's own socket is below `/run`.
const DIRECTORIES: [&str; 4] = ["/var/lib", "/var/cache", "/var/log", "/etc/libvirt"];

/// Settings of libvirt's QEMU driver: guests run as root, without what a story's world has not.
const SETTINGS: &str = "
user = 'root'
group = 'root'
security_driver = 'none'
namespaces = []
cgroup_controllers = []
stdio_handler = 'file'
dynamic_ownership = 0
seccomp_sandbox = 0
";

/// A libvirtd, in a world without systemd.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts a libvirtd that finds QEMU in this directory, and waits until it answers.
    pub(crate) fn start(programs: &str) -> Daemon {
        for directory in DIRECTORIES {
            fs::create_dir_all(directory).unwrap();
            run(&format!("mount -t tmpfs tmpfs {directory}"));
        }
        // It shows the devices of this network namespace, not the host's.
        run("mount -t sysfs sysfs /sys");
        fs::write("/etc/libvirt/qemu.conf", SETTINGS.replace('\'', "\"")).unwrap();
        // The package of libvirt's service makes both, and libvirtd looks for the user.
        add_account("/etc/passwd", "libvirt-qemu", "x:64055:64055::/var/lib/libvirt:/bin/false");
        add_account("/etc/group", "libvirt-qemu", "x:64055:");
        add_account("/etc/group", "kvm", "x:64056:libvirt-qemu");
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let log = File::create("/run/libvirtd.log").unwrap();
        // QEMU ends as an orphan, and libvirtd waits until its process is gone: bash, as process 1
        // of a namespace, reaps it.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
        command.arg("libvirtd; true").env("PATH", path);
        let daemon = Daemon(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        until("libvirtd answers", || {
            let asked = Command::new("virsh").args(["--connect", "qemu:///system", "list"]).heard();
            asked.status.success().then_some(())
        });
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Adds a line to a file of accounts, as this story sees it, unless it has the name.
fn add_account(file: &str, name: &str, rest: &str) {
    let text = fs::read_to_string(file).unwrap();
    if text.lines().any(|line| line.starts_with(&format!("{name}:"))) {
        return;
    }
    let own = format!("/run/{name}-{}", file.replace('/', "-"));
    fs::write(&own, format!("{text}{name}:{rest}\n")).unwrap();
    run(&format!("mount --bind {own} {file}"));
}

const PORTS: &str = "
[[port]]
name = 'plain'
vhost-user = '/run/millrace/plain.sock'

[[port]]
name = 'full'
vhost-user = \"/run/millrace/a&b'c.sock\"
queues = 4
mac = '52:54:00:00:00:01'
mtu = 9000
socket-group = 'root'

[[port]]
name = 'listening'
vhost-user = '/run/millrace/listening.sock'
vhost-client = true
";

#[test]
fn the_elements_for_libvirt_are_valid_by_its_schema() {
    story(&[Need::Program("virt-xml-validate"), Need::Program("xmllint")], || {
        let _switch = Switch::start(PORTS);
        let printed = ["plain", "full", "listening"].map(elements);
        for one in &printed {
            accepted(&domain(std::slice::from_ref(one)));
        }
        let all = domain(&printed);
        accepted(&all);
        // The schema refuses wrong values.
        for (right, wrong) in [("queues='4'", "queues='x'"), ("type='vhostuser'", "type='vhost'")] {
            let broken = all.replace(right, wrong);
            assert_ne!(all, broken);
            let output = validate(&broken);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains("fails to validate"), "{told}");
        }
    });
}

/// Returns the elements that a port's command prints: those of the guest, and those of its vNIC.
fn elements(port: &str) -> (String, String) {
    let printed = output_of(millrace().args(["port", "show", port, "--libvirt"]));
    let (memory, vnic) = printed.split_once("</memoryBacking>\n").unwrap();
    (format!("{memory}</memoryBacking>\n"), vnic.to_owned())
}

/// Returns a guest with these vNICs.
fn domain(vnics: &[(String, String)]) -> String {
    let memory = &vnics[0].0;
    let interfaces: String = vnics.iter().map(|(_, vnic)| vnic.as_str()).collect();
    format!(
        "<domain type='kvm'>
<name>guest</name>
<memory unit='GiB'>1</memory>
{memory}<vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices>
{interfaces}</devices>
</domain>
"
    )
}

fn validate(domain: &str) -> Output {
    let path = "/run/domain.xml";
    std::fs::write(path, domain).unwrap();
    Command::new("virt-xml-validate").args([path, "domain"]).heard()
}

fn accepted(domain: &str) {
    let output = validate(domain);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{domain}");
}
