//! libvirt: the output of `millrace port show --libvirt`, in a domain around it, is valid by
//! libvirt's own schema.

use crate::heard::Heard;
use crate::sandbox::{Need, output_of, story};
use crate::switch::{Switch, millrace};
use std::process::{Command, Output};

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
