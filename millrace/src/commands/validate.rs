//! `millrace validate`: measures a feature on this host, on against off.

use super::existing_hosts::{Hosts, RefusedHosts};
use super::measuring::{Measuring, carry_out};
use crate::global::Global;
use crate::output::{Failure, Outcome};
use clap::{Args, Subcommand};
use lab::campaign::Campaign;
use lab::experiments::{
    acl, checksum, hotplug, iscsi, jumbo, kernel_path, limits, lso, migration, rate, self_test,
    storage, team, vlan, vmmq, vrss, xdp,
};
use lab::options::{JumboOptions, Options, RateOptions, RscOptions, SelfTestOptions, TeamOptions};
use lab::validate;
use lab::vnic::Receivers;
use problem::Problem;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Receive segment coalescing in the vSwitch: CPU, cycles per byte, throughput, round trips
    Rsc(Rsc),
    /// Large send offload of a sending guest
    #[command(after_help = LSO_HELP)]
    Lso(Toggled),
    /// Checksum offload of a sending guest
    #[command(after_help = CHECKSUM_HELP)]
    Checksum(Toggled),
    /// Jumbo frames against MTU 1500, with all links switched live
    Jumbo(Jumbo),
    /// Unlimited coalescing against trains of at most four segments, and of 25 x MTU and 2 ACKs
    #[command(after_help = LIMITS_HELP)]
    Limits(OnAndOff),
    /// A port added and removed every 100 ms, beside a flow between two others
    #[command(after_help = HOTPLUG_HELP)]
    Hotplug(Toggled),
    /// A hundred ACL rules toward the guest against none
    #[command(after_help = ACL_HELP)]
    Acl(Toggled),
    /// The guest's port as a trunk port against an access port
    #[command(after_help = VLAN_HELP)]
    Vlan(Toggled),
    /// What TCP gets of `rate`, and of `rate-to`, at 50 Mbit, 200 Mbit and 1 Gbit
    Rate(RateLimits),
    /// Dynamic VMMQ: one queue, several static ones, and several balanced by load
    #[command(after_help = VMMQ_HELP)]
    Vmmq(Queued),
    /// vRSS: a vNIC with one queue pair, and with several by `steer=rss` and `steer=follow`
    #[command(after_help = VRSS_HELP)]
    Vrss(Queued),
    /// An uplink by AF_XDP against one by AF_PACKET
    #[command(after_help = XDP_HELP)]
    Xdp(Toggled),
    /// Flows that the kernel carries by itself against flows through the switch and a Linux bridge
    #[command(after_help = KERNEL_PATH_HELP)]
    KernelPath(KernelPath),
    /// An uplink team of one member against one of two, and the outage of a failover
    #[command(after_help = TEAM_HELP)]
    Team(Team),
    /// Live migration between two hosts: MTU 1500 and 9000, 1 and 4 channels
    Migration(Migration),
    /// Direct storage: a guest's iSCSI multipath over two members, MTU 1500 and 9000, 1 and 4 queue
    /// pairs, one member pulled
    Storage(Storage),
    /// iSCSI between two programs, without a guest: through the switch against a direct veth
    Iscsi(Iscsi),
    /// The verdicts themselves: two equal arms, and an arm slowed by 5 %, twenty times each
    #[command(name = "self")]
    Itself(Itself),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate rsc                            # about seven minutes
  millrace validate rsc --brief                    # a verdict within a minute, as `make demo`
  millrace validate rsc --quick --connections 1,16
  millrace validate rsc --in-process --json        # where namespaces are not allowed
  millrace validate rsc --receiver tap --fail-if 'throughput < 2.0x'      # for CI
  millrace validate rsc --receiver qemu --guest target/guests/qemu        # to a virtual machine
  millrace validate rsc --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900
                                                   # an agent on each of two hosts, the switch here

RSC is toggled in ABBA order while the connections keep running.

Hosts: sender, switch and receiver each run in their own network namespace, which ends with the
command; the host's network is not touched. With three processors each has its own; with two the
sender has one. Without namespaces everything runs in one process, or fails if --receiver is given.
With --sender the hosts are existing ones; RSC of one port of the running switch is toggled, and
restored at the end.

Other switches: the Linux bridge with and without GRO, Open vSwitch (netdev data path) if installed,
and this switch with the kernel's GRO at the uplink carry the same load in turn with both arms. The
report names those that cannot run.

Receivers: first a TAP; then, with up to 16 connections and without the other switches, a TAP whose
kernel coalesces (GRO) as a guest's does, which leaves less for the switch to gain. --receiver tap
or tap-gro measures only one of the two. --receiver qemu measures toward a virtual machine, without
round trips and other switches. QEMU emulates its processor (TCG), so only the ratio is meaningful,
not rates or costs. --guest is the virtual machine's directory, made by `cargo xtask guests qemu`.

Round trips of one byte follow, idle and beside bulk connections (16 at most). The default of 26
intervals per arm detects differences of 5 % and more; from 1000 connections on there are a third as
many, and each row says how many.

Exits with 1 if a check fails or an error occurs, otherwise with 5 if a condition of --fail-if
holds, and with 130 after Ctrl-C. What was measured is always written, as HTML, Markdown, JSON, CSV
of all intervals, and JUnit XML.")]
struct Rsc {
    /// Only the verdict, in less than a minute: RSC on, off, and the Linux bridge with GRO, with 1
    /// and 16 connections, toward a TAP unless --receiver names another.
    #[arg(long, conflicts_with_all = ["sender", "quick"])]
    brief: bool,
    /// Use two TCP stacks in this process instead of hosts in namespaces.
    #[arg(long, conflicts_with_all = ["sender", "receiver"])]
    in_process: bool,
    /// The guest of --receiver qemu, made by `cargo xtask guests qemu` [default:
    /// target/guests/qemu].
    #[arg(long, value_name = "DIRECTORY", requires = "receiver")]
    guest: Option<PathBuf>,
    #[command(flatten)]
    common: OnAndOff,
}

const LSO_HELP: &str = "\
Example:
  millrace validate lso --quick

The guest behind the vNIC sends; its LSO is toggled while the connections keep running.
Needs namespaces. Exit codes are those of `validate rsc`.";

const CHECKSUM_HELP: &str = "\
Example:
  millrace validate checksum --quick

The guest behind the vNIC sends without LSO; its checksum offload is toggled while the connections
keep running. Needs namespaces. Exit codes are those of `validate rsc`.";

const LIMITS_HELP: &str = "\
Example:
  millrace validate limits --quick

RSC is on in all arms; `length-limit` and `ack-limit` of the vNIC's port are toggled while the
connections keep running: no limits, 4 segments, and the slides' limits, which FreeBSD's driver for
Hyper-V has by default (25 x MTU and 2 acknowledgements). Needs namespaces or existing hosts. Exit
codes are those of `validate rsc`.";

const HOTPLUG_HELP: &str = "\
Example:
  millrace validate hotplug --quick

A third port is added and removed while two others carry a flow. The check fails if these two lose
more frames than without the third port. Needs namespaces and /dev/net/tun. Exit codes are those of
`validate rsc`.";

const ACL_HELP: &str = "\
Example:
  millrace validate acl --quick

The rules are added and removed while the connections keep running; no difference above 5 % is
expected. Needs namespaces and `ping`. Exit codes are those of `validate rsc`.";

const VLAN_HELP: &str = "\
Example:
  millrace validate vlan --quick

The guest's port is a trunk port and an access port in turn while the connections keep running;
their frames are untagged in both. No difference above 5 % is expected. Needs namespaces. Exit codes
are those of `validate rsc`.";

const VMMQ_HELP: &str = "\
Examples:
  millrace validate vmmq                           # about five minutes
  millrace validate vmmq --quick                   # one and a half

Uplink and vNIC have in turn one queue, --queues static ones, and --queues that are balanced by load
(dynamic), while the connections keep running; the ports are reopened for each arm. Every interval
has four phases: idle for half of --seconds, 100 Mb/s for --seconds, full load for --seconds, and
idle for 2.8 s, in which the queues can move back together. The report compares the throughput and
the processor time per GiB at full load, and the switch's processors at 100 Mb/s; a table has each
phase's throughput, processors and workers in use, moves and losses. The check fails if nothing
moves in the dynamic arm, if anything moves in a static one, or if a phase does not have its load.
There are 12 intervals per arm, with --quick 5; each verdict then holds with 93.75 % on its own.
The switch has a worker per queue, but no more than there are processors; if it uses all of them,
the sender shares one. Needs namespaces. Exit codes are those of `validate rsc`.";

const VRSS_HELP: &str = "\
Examples:
  millrace validate vrss                           # about three minutes
  millrace validate vrss --quick --queues 4

The vNIC, a TAP, has in turn one queue pair, --queues with `steer=rss`, and --queues with
`steer=follow`, while the connections keep running; the port is reopened for each arm. The uplink
always has --queues. The check fails if one of the vNIC's queues carries nothing. The switch has a
worker per queue, but no more than there are processors. Needs namespaces. Exit codes are those of
`validate rsc`.";

const XDP_HELP: &str = "\
Example:
  millrace validate xdp --quick --connections 1,16

The uplink is a packet port and an xdp port in turn, with RSC on and off, while the connections keep
running. A Linux bridge with and without GRO takes turns with them. If AF_XDP is not available, the
command fails with the reason. Needs namespaces and the right to load eBPF programs. Exit codes are
those of `validate rsc`.";

const KERNEL_PATH_HELP: &str = "\
Examples:
  millrace validate kernel-path                    # three quarters of an hour
  millrace validate kernel-path --quick --connections 16

The guest is a container: its vNIC is one end of a veth, whose other end is a packet port. It
receives from the uplink, sends to it, and receives from a second container. `kernel-path` of both
ports is auto and off in turn, off with and without the kernel's GRO where frames reach the switch;
a Linux bridge takes turns with them, with GRO, without, and with GRO but without netfilter. All
connections are opened anew for each arm. Round trips of one byte beside 16 bulk connections follow
those that the container receives. If the kernel refuses the programs, the command fails with the
reason. The check fails if the kernel carried less than 90 % of the bytes with the kernel path on,
or more than 5 % with it off. There are 12 intervals per arm, with --quick 5; 1000 connections have a third.
Needs namespaces, Linux 6.6 and the right to load eBPF programs. Exit codes are those of
`validate rsc`.";

const TEAM_HELP: &str = "\
Examples:
  millrace validate team                           # about one minute
  millrace validate team --quick --pulls 50        # about two minutes more

The guest sends through a team of one member and of two in turn; each member carries 200 Mbit/s.
Before that, for each algorithm, the member that carries the guest's address is pulled --pulls times
while the guest sends. The checks fail if the median outage is above the goal of 50 ms, or any above
500 ms; pulls that miss the goal are counted. Needs namespaces and tc. Exit codes are those of
`validate rsc`.";

/// Options of features with several queues per port.
#[derive(Args)]
struct Queued {
    /// Connection counts, measured in turn [default: 16; for vrss 16 per queue].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Queues per port in the arms with several.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(2..=64))]
    queues: u32,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    hosts: RefusedHosts,
}

/// The links of the hosts that the command makes.
#[derive(Args)]
struct Links {
    /// MTU of every link, in bytes.
    #[arg(long, default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=9216))]
    mtu: u16,
}

/// Options of most features.
#[derive(Args)]
struct Toggled {
    /// Connection counts, measured in turn [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    links: Links,
    #[command(flatten)]
    hosts: RefusedHosts,
}

/// Options of features that are also measured between existing hosts.
#[derive(Args)]
struct OnAndOff {
    /// Connection counts, measured in turn [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    links: Links,
    // Last, because its heading applies to everything after it.
    #[command(flatten)]
    hosts: Hosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate jumbo                          # about one minute
  millrace validate jumbo --quick --mtu 4000
  millrace validate jumbo --two-paths              # now you tell which one is which
  millrace validate jumbo --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900

The MTU of every link from sender to receiver is switched between 1500 and --mtu while the
connections keep running. First a full frame of each size is sent end to end; if one is lost, the
report names the hop and nothing is measured.

With --two-paths two loads run at the same time, each over an uplink and a vNIC of its own, and one
of the two paths has jumbo frames. A line for each path shows its rate; the report says which one is
which.

With --sender no link is changed: the path is measured at the MTU that it has, against connections
that limit their segments to those of MTU 1500, opened anew for each arm. The check fails if the
path carries no larger segments.

Needs namespaces and `ping`, or existing hosts. Exit codes are those of `validate rsc`.")]
struct Jumbo {
    /// Connection counts, measured in turn [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    /// MTU with jumbo frames, in bytes.
    #[arg(long, default_value = "9000", value_parser = clap::value_parser!(u16).range(1501..=9216))]
    mtu: u16,
    /// Run the load over two paths at the same time, one of them with jumbo frames.
    #[arg(long, conflicts_with_all = ["sender", "receiver"])]
    two_paths: bool,
    #[command(flatten)]
    hosts: Hosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate rate --quick
  millrace validate rate --congestion bbr --connections 1
  millrace validate rate --round-trip 20

First the guest sends, and `rate` of its port changes between 50 Mbit, 200 Mbit and 1 Gbit while the
connections keep running; then it receives, and `rate-to` changes. The check fails if TCP gets less
than 95 % or more than 102 % of either. Needs namespaces. Exit codes are those of `validate rsc`.")]
struct RateLimits {
    /// Connection counts, measured in turn [default: 1,64].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// TCP's congestion control by the kernel's name [default: cubic].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Delay what the far end sends, so that each round trip takes so many milliseconds more.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    round_trip: Option<u32>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    links: Links,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
struct KernelPath {
    /// Connection counts, measured in turn [default: 1,16,64,1000].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    links: Links,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
struct Team {
    /// Connection counts, measured in turn [default: 16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    /// How often to pull the guest's member per algorithm, before the measurement.
    #[arg(long, default_value_t = team::PULLS, value_parser = clap::value_parser!(u16).range(1..))]
    pulls: u16,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate migration --guest target/guests/qemu          # 78 migrations, about five minutes
  millrace validate migration --guest target/guests/qemu --quick

An emulated guest migrates back and forth between two hosts, each with a switch. Its memory goes
through the uplinks, in turn at MTU 1500 and 9000 and over 1 and 4 connections (QEMU's multifd).
The report compares QEMU's total time, rate and downtime, the processor time per GiB, the longest
time without an answer to pings, and the switch's share of it. A stream to the guest and back runs
throughout; the check fails if one of its bytes is wrong or missing, or a ping is answered twice.
In two more arms memory bypasses the switch, and the switches are Millrace or OVS-DPDK, if Debian's
openvswitch-switch-dpdk is installed: these two are compared.
--guest is the directory that `cargo xtask guests qemu` prints: kernel, initramfs and QEMU.
--seconds is how long the load runs before and after each migration. Needs namespaces, /dev/net/tun
and `ping`. Exit codes are those of `validate rsc`.")]
struct Migration {
    /// The guest and its QEMU, made by `cargo xtask guests qemu`.
    #[arg(long, value_name = "DIRECTORY")]
    guest: PathBuf,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate storage --guest target/guests/qemu            # 52 pulls, about fifteen minutes
  millrace validate storage --guest target/guests/qemu --quick

An emulated guest has two vNICs, each pinned to its own member of a team. Through each it reaches
one portal of an iSCSI target; dm-multipath combines the two paths into one disk. At MTU 1500 and
9000, with 1 and 4 queue pairs of each vNIC in use, the report compares sequential 128 KiB and
random 4 KiB reads and writes, and the longest request time while one member is pulled. Meanwhile
the guest copies part of the disk; the check fails if a byte is wrong, a request fails, or a path
carries nothing.
--guest is the directory that `cargo xtask guests qemu` prints. --seconds is how long each kind of
request runs. Needs namespaces. Exit codes are those of `validate rsc`.")]
struct Storage {
    /// The guest, its QEMU and the target, made by `cargo xtask guests qemu`.
    #[arg(long, value_name = "DIRECTORY")]
    guest: PathBuf,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate iscsi                          # about five minutes
  millrace validate iscsi --mtu 9000 --quick

tgtd serves a file to iscsi-perf, each in its own network namespace, in turn over two TAP ports of a
switch and over a veth between the two; a third arm is the switch with `poll = \"always\"`, which
shows what the wake-ups of a worker take. In each interval iscsi-perf reads sequentially (128 KiB,
32 requests at a time), randomly (4 KiB, 32 at a time) and randomly one request at a time, each for
--seconds, rounded to whole seconds from 1 to 10. No difference above 10 % is expected. The switch
runs only while its arm is measured. Needs namespaces, /dev/net/tun, and the programs of the
packages tgt and libiscsi-bin. Exit codes are those of `validate rsc`.")]
struct Iscsi {
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    links: Links,
    #[command(flatten)]
    hosts: RefusedHosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate self                           # nine minutes, longer on a busy machine
  millrace validate self --quick                   # five tries of each kind, two minutes
  millrace validate self --json --output proof

Each try is a complete experiment, with the bench, order, intervals and verdict of every other
experiment: TCP from the sender to the guest at 400 Mb/s. In half of the tries both arms are equal,
and the verdict must see no difference. In the others one arm's sender sends 5 % less, and the
verdict must see it. A try is undecided if its confidence interval holds both answers, and wrong if
it holds only the wrong one. A try runs until its figure is known to within 2.5 %, or for 64
intervals per arm. All verdicts together hold with 99 % confidence. Needs namespaces.
Exits with 1 if a try is wrong or more than one in twenty of a kind is undecided, and with 130 after
Ctrl-C; --resume continues.")]
struct Itself {
    /// Tries of each kind [default: 20; with --quick 5].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    tries: Option<u16>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    hosts: RefusedHosts,
}

/// What features do that existing hosts do not allow.
mod refusals {
    pub(super) const OFFLOADS: &str =
        "a feature of the sending guest's own device, which an agent has no right to change";
    pub(super) const HOTPLUG: &str =
        "a third port that is added ten times a second, which a switch in use is spared";
    pub(super) const RULES: &str =
        "rules or VLANs of a port, which guard it: they are not replaced at a switch in use";
    pub(super) const RATES: &str = "rates of a port, which are not changed at a switch in use";
    pub(super) const XDP: &str =
        "an uplink that is reopened, which interrupts all other ports of a switch in use";
    pub(super) const KERNEL_PATH: &str =
        "containers that the command makes, and ports that it changes";
    pub(super) const TEAM: &str = "team members that are pulled and limited to 200 Mbit/s";
    pub(super) const QUEUES: &str = "ports that are reopened with other queues, which interrupts a \
                                     switch in use, and a guest keeps the queues it started with";
    pub(super) const GUEST: &str = "a guest that the command boots, with switches of its own";
    pub(super) const PROGRAMS: &str = "programs that the command starts, which agents refuse";
    pub(super) const KNOWN: &str =
        "differences that are known beforehand, which only hosts of its own have";
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let own = |name: &str, make: fn(&Options) -> Campaign, toggled: &Toggled, why: &str| {
        toggled.hosts.refuse(&format!("validate {name}"), why)?;
        carry_out(&make, &toggled.options()?, global)
    };
    match &arguments.what {
        What::Rsc(rsc) => run_rsc(rsc, global),
        What::Limits(common) => {
            common.hosts.one_receiver("validate limits")?;
            carry_out(&limits::campaign, &common.options(false, global)?, global)
        }
        What::Jumbo(jumbo) => carry_out(&jumbo::campaign, &jumbo.options(global)?, global),
        What::Lso(toggled) => own("lso", lso::campaign, toggled, refusals::OFFLOADS),
        What::Checksum(toggled) => own("checksum", checksum::campaign, toggled, refusals::OFFLOADS),
        What::Hotplug(toggled) => own("hotplug", hotplug::campaign, toggled, refusals::HOTPLUG),
        What::Acl(toggled) => own("acl", acl::campaign, toggled, refusals::RULES),
        What::Vlan(toggled) => own("vlan", vlan::campaign, toggled, refusals::RULES),
        What::Rate(limits) => carry_out(&rate::campaign, &limits.options()?, global),
        What::Xdp(toggled) => own("xdp", xdp::campaign, toggled, refusals::XDP),
        What::KernelPath(path) => carry_out(&kernel_path::campaign, &path.options()?, global),
        What::Team(team) => carry_out(&team::campaign, &team.options()?, global),
        What::Vmmq(queued) => {
            let options = queued.options("validate vmmq", Options::vmmq)?;
            carry_out(&vmmq::campaign, &options, global)
        }
        What::Vrss(queued) => {
            let options = queued.options("validate vrss", Options::vrss)?;
            carry_out(&vrss::campaign, &options, global)
        }
        What::Migration(Migration { guest, measuring, hosts }) => {
            hosts.refuse("validate migration", refusals::GUEST)?;
            let base = |program| Options::migration(guest.clone(), program);
            carry_out(&migration::campaign, &measuring.options(base, &[])?, global)
        }
        What::Storage(Storage { guest, measuring, hosts }) => {
            hosts.refuse("validate storage", refusals::GUEST)?;
            let base = |program| Options::migration(guest.clone(), program);
            carry_out(&storage::campaign, &measuring.options(base, &[])?, global)
        }
        What::Iscsi(iscsi) => carry_out(&iscsi::campaign, &iscsi.options()?, global),
        What::Itself(tries) => carry_out(&self_test::campaign, &tries.options()?, global),
    }
}

fn run_rsc(Rsc { common, in_process, guest, brief }: &Rsc, global: &Global) -> Outcome {
    let options = common.options(*brief, global)?;
    let named = common.hosts.receivers();
    let guest = receiving_guest(named, guest.as_ref())?;
    let receivers = match *in_process || options.existing_hosts.is_some() {
        true => None,
        false => Receivers::possible(named)
            .map_err(|error| Failure::Failed(Problem::new(error.to_string())))?,
    };
    // A second receiver takes as long as the first.
    let receivers = match receivers {
        Some(Receivers::Both) if *brief => Some(Receivers::Tap),
        asked => asked,
    };
    let (in_process, receiver_named) = (*in_process, named.is_some());
    let rsc = RscOptions { in_process, receivers, receiver_named, brief: *brief };
    let options = Options { rsc, guest, ..options };
    carry_out(&validate::campaign, &options, global)
}

/// Returns the directory of the receiving guest; `None` if the receiver is not a virtual machine.
fn receiving_guest(
    named: Option<Receivers>,
    guest: Option<&PathBuf>,
) -> Result<Option<PathBuf>, Failure> {
    match (named, guest) {
        (Some(Receivers::Qemu), guest) => {
            Ok(Some(guest.cloned().unwrap_or_else(|| "target/guests/qemu".into())))
        }
        (_, None) => Ok(None),
        (_, Some(guest)) => Err(Failure::Usage(
            Problem::new(format!("--guest {}", guest.display()))
                .seen("a receiver that is not a virtual machine")
                .wanted("--receiver qemu")
                .remedy("omit --guest, or add --receiver qemu"),
        )),
    }
}

impl OnAndOff {
    fn options(&self, brief: bool, global: &Global) -> Result<Options, Failure> {
        let base = |program| {
            let usual = Options::new(program);
            if brief { usual.brief() } else { usual }
        };
        let options = self.measuring.options(base, &self.connections)?;
        Ok(Options {
            mtu: self.links.mtu,
            existing_hosts: self.hosts.existing_hosts(global)?,
            ..options
        })
    }
}

impl Toggled {
    fn options(&self) -> Result<Options, Failure> {
        let options = self.measuring.options(Options::new, &self.connections)?;
        Ok(Options { mtu: self.links.mtu, ..options })
    }
}

impl Jumbo {
    fn options(&self, global: &Global) -> Result<Options, Failure> {
        self.hosts.one_receiver("validate jumbo")?;
        let options = self.measuring.options(Options::new, &self.connections)?;
        let jumbo = JumboOptions { two_paths: self.two_paths };
        let existing_hosts = self.hosts.existing_hosts(global)?;
        Ok(Options { mtu: self.mtu, jumbo, existing_hosts, ..options })
    }
}

impl RateLimits {
    fn options(&self) -> Result<Options, Failure> {
        self.hosts.refuse("validate rate", refusals::RATES)?;
        let options = self.measuring.options(Options::rate, &self.connections)?;
        let rate =
            RateOptions { congestion: self.congestion.clone(), round_trip_ms: self.round_trip };
        Ok(Options { mtu: self.links.mtu, rate, ..options })
    }
}

impl KernelPath {
    fn options(&self) -> Result<Options, Failure> {
        self.hosts.refuse("validate kernel-path", refusals::KERNEL_PATH)?;
        let options = self.measuring.options(Options::kernel_path, &self.connections)?;
        Ok(Options { mtu: self.links.mtu, ..options })
    }
}

impl Team {
    fn options(&self) -> Result<Options, Failure> {
        self.hosts.refuse("validate team", refusals::TEAM)?;
        let options = self.measuring.options(Options::team, &self.connections)?;
        Ok(Options { team: TeamOptions { pulls: usize::from(self.pulls) }, ..options })
    }
}

impl Iscsi {
    fn options(&self) -> Result<Options, Failure> {
        self.hosts.refuse("validate iscsi", refusals::PROGRAMS)?;
        let options = self.measuring.options(Options::new, &[])?;
        Ok(Options { mtu: self.links.mtu, ..options })
    }
}

impl Itself {
    fn options(&self) -> Result<Options, Failure> {
        self.hosts.refuse("validate self", refusals::KNOWN)?;
        let options = self.measuring.options(Options::self_test, &[])?;
        let tries = self.tries.map_or(options.self_test.tries, usize::from);
        Ok(Options { self_test: SelfTestOptions { tries }, ..options })
    }
}

impl Queued {
    fn options(
        &self,
        command: &str,
        base: fn(u32, PathBuf) -> Options,
    ) -> Result<Options, Failure> {
        self.hosts.refuse(command, refusals::QUEUES)?;
        self.measuring.options(|program| base(self.queues, program), &self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::process;

    /// Returns the options of `validate rsc` from a line that a shell would parse.
    fn typed(line: &str) -> Options {
        let mut shell = process::Command::new("sh");
        let words = shell.args(["-c", &format!("printf '%s\n' {line}")]);
        let words = String::from_utf8(words.output().unwrap().stdout).unwrap();
        let cli = Cli::try_parse_from(words.lines()).unwrap_or_else(|why| panic!("{line}: {why}"));
        match &cli.command {
            Command::Validate(Arguments { what: What::Rsc(rsc) }) => {
                rsc.common.options(false, &cli.global).ok().unwrap()
            }
            _ => panic!("{line}"),
        }
    }

    /// The line once omitted the receiver, its address and link, and the port, and so measured
    /// something else.
    #[test]
    fn the_command_printed_between_hosts_names_the_same_hosts_and_no_token() {
        let sender = "--sender 0123456789abcdef@far.example:5900";
        let rest =
            "--to fd00::7 --link 'it'\\''s eth1' --port vm-3 --socket '/run/a switch/api.sock'";
        for (receiver, named) in [
            ("", "far.example:5900 --to"),
            (
                "--receiver '0123456789abcdef@[fd00::7]:5901'",
                "far.example:5900 --receiver 'TOKEN-OF-THE-RECEIVER@[fd00::7]:5901' --to",
            ),
            ("--receiver-netns guest", "far.example:5900 --receiver-netns /run/netns/guest --to"),
        ] {
            let first = typed(&format!("millrace validate rsc {sender} {receiver} {rest}"));
            let line = first.command("rsc");
            assert!(line.contains(named) && !line.contains("0123456789abcdef"), "{line}");
            let again = typed(&line);
            assert_eq!(again.command("rsc"), line);
            let hosts = |options: Options| {
                let hosts = options.existing_hosts.unwrap();
                (hosts.to, hosts.link, hosts.port, hosts.socket)
            };
            assert_eq!(hosts(again), hosts(first), "{line}");
        }
    }
}
