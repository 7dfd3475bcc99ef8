//! `millrace validate`: proves a feature on this host, on against off.

use super::between::Hosts;
use super::measuring::{Measuring, carry_out};
use crate::cli::Global;
use crate::output::{Failure, Outcome};
use clap::{Args, Subcommand};
use control::Problem;
use lab::experiments::{
    Feature, acl, checksum, hotplug, itself, jumbo, limits, lso, migration, rsc, team, vlan, vmmq,
    vrss, xdp,
};
use lab::options::{Options, Receivers};
use lab::validate;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Receive segment coalescing in the vSwitch: CPU, cycles per byte, throughput, round trips idle and under load
    Rsc(Rsc),
    /// Large send offload of a guest that sends
    #[command(after_help = LSO_HELP)]
    Lso(OnAndOff),
    /// Checksum offload of a guest that sends
    #[command(after_help = CHECKSUM_HELP)]
    Checksum(OnAndOff),
    /// Jumbo frames against MTU 1500, all links switched live
    Jumbo(Jumbo),
    /// Coalescing without limits against trains of four segments at most
    #[command(after_help = LIMITS_HELP)]
    Limits(OnAndOff),
    /// Adding and removing a port every 100 ms against none, under a flow between two others
    #[command(after_help = HOTPLUG_HELP)]
    Hotplug(OnAndOff),
    /// A hundred ACL rules toward the guest against none
    #[command(after_help = ACL_HELP)]
    Acl(OnAndOff),
    /// The guest's port as a trunk against an access port
    #[command(after_help = VLAN_HELP)]
    Vlan(OnAndOff),
    /// Dynamic VMMQ: one queue, several, and several whose entries move by load, under a load with phases
    #[command(after_help = VMMQ_HELP)]
    Vmmq(Queued),
    /// vRSS: a vNIC with one queue pair, and with several by `steer=rss` and `steer=follow`
    #[command(after_help = VRSS_HELP)]
    Vrss(Queued),
    /// An uplink by AF_XDP against one by AF_PACKET
    #[command(after_help = XDP_HELP)]
    Xdp(OnAndOff),
    /// An uplink of one member against one of two, and the outage of a failover
    #[command(after_help = TEAM_HELP)]
    Team(Team),
    /// Live migration between two hosts: MTU 1500 and 9000, 1 and 4 channels, downtime and outage
    Migration(Migration),
    /// This command's own verdicts: the same arm twice, and traffic slowed by 5 %, twenty times each
    #[command(name = "self")]
    Itself(Itself),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate rsc                            # about seven minutes
  millrace validate rsc --quick --connections 1,16
  millrace validate rsc --in-process --json        # where namespaces are not allowed
  millrace validate rsc --receiver tap --fail-if 'throughput < 2.0x'      # for CI
  millrace validate rsc --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900
                                                   # an agent on each of two hosts, the switch here

Sender, switch and receiver run in network namespaces of their own, which end with the command; the
host's network is not touched. Each has its own processors where there are three, and with two the
sender has one. Without namespaces everything runs in one process, which --receiver forbids.
The Linux bridge with and without GRO, Open vSwitch (netdev data path) where installed, and our
switch with the kernel's GRO at the uplink carry the same load in turn with both arms; one that
cannot run is named. With --sender the hosts are existing ones, and RSC of one port of the running
switch is toggled and restored. RSC is toggled in ABBA order while the connections keep running.

The receiver is a TAP, and then, with up to 16 connections and without the other switches, one whose
kernel coalesces (GRO) as a guest's does, which leaves less for the switch to gain; --receiver tap
or tap-gro measures one of the two alone. Round trips of one byte follow, idle and beside bulk
connections (16 at most). The default of 26 intervals per arm detects differences of 5 % and more;
from 1000 connections on there are a third as many, and each row says how many.

Exits with 1 when a check fails or an error occurs, otherwise with 5 when a condition of --fail-if
holds, and with 130 after Ctrl-C; what was measured is written in any case, as HTML, Markdown, JSON,
CSV of all intervals, and JUnit XML.")]
struct Rsc {
    /// Two TCP stacks in this process instead of hosts in namespaces.
    #[arg(long, conflicts_with_all = ["sender", "receiver"])]
    in_process: bool,
    #[command(flatten)]
    common: OnAndOff,
}

const LSO_HELP: &str = "\
Example:
  millrace validate lso --quick

The guest behind the vNIC sends; its LSO is turned off and on while the connections keep running.
Needs namespaces. Exit codes are those of `validate rsc`.";

const CHECKSUM_HELP: &str = "\
Example:
  millrace validate checksum --quick

The guest behind the vNIC sends without LSO; its checksum offload is turned off and on while the
connections keep running. Needs namespaces. Exit codes are those of `validate rsc`.";

const LIMITS_HELP: &str = "\
Example:
  millrace validate limits --quick

RSC is on in both arms; `length-limit` of the vNIC's port is switched while the connections keep
running. Needs namespaces, or existing hosts. Exit codes are those of `validate rsc`.";

const HOTPLUG_HELP: &str = "\
Example:
  millrace validate hotplug --quick

A third port comes and goes while two others carry a flow. Frames that these two lose are counted,
and the check fails if they lose more than without a third port. Needs namespaces and /dev/net/tun.
Exit codes are those of `validate rsc`.";

const ACL_HELP: &str = "\
Example:
  millrace validate acl --quick

The rules come and go while the connections keep running; no difference above 5 % is expected. Needs
namespaces and `ping`. Exit codes are those of `validate rsc`.";

const VLAN_HELP: &str = "\
Example:
  millrace validate vlan --quick

The guest's port becomes a trunk and an access port again while the connections keep running,
untagged in both; no difference above 5 % is expected. Needs namespaces. Exit codes are those of
`validate rsc`.";

const VMMQ_HELP: &str = "\
Examples:
  millrace validate vmmq                           # about five minutes
  millrace validate vmmq --quick                   # one and a half

Uplink and vNIC have one queue, --queues that stay (static), and --queues that follow the load
(dynamic), in turn while the connections keep running; ports are opened anew for each. Every
interval goes through four phases: idle for half of --seconds, 100 Mb/s for --seconds, as much as
can be sent for --seconds, and idle for 2.8 s, so that the queues can come together again. Compared are
the throughput and the processor time for a GiB at full load, and the processors of the switch at
100 Mb/s. A table has each phase with its throughput, the processors and workers in use, the moves,
and what was lost in all of it. The check fails when nothing moves while dynamic, or something while
static, or when a phase is not what it is called.
There are 12 intervals per arm; with --quick 5, and each verdict holds with 93.75 % by itself only.
The switch has a worker for each queue, as far as there are processors; where it takes all of them
the sender shares one. Needs namespaces. Exit codes are those of `validate rsc`.";

const VRSS_HELP: &str = "\
Examples:
  millrace validate vrss                           # about three minutes
  millrace validate vrss --quick --queues 4

The vNIC, a TAP, has one queue pair, and --queues by `steer=rss` and by `steer=follow`, in turn
while the connections keep running; the port is opened anew for each. The uplink has --queues
throughout. The check fails when one of the vNIC's queues carries nothing. The switch has a worker
for each queue, as far as there are processors. Needs namespaces. Exit codes are those of
`validate rsc`.";

const XDP_HELP: &str = "\
Example:
  millrace validate xdp --quick --connections 1,16

The uplink is a packet port and an xdp port in turn while the connections keep running, with RSC on
and off, and a Linux bridge with and without GRO carries them in turn with these. It ends with an
error where AF_XDP cannot be had, and says why. Needs namespaces and the right to load eBPF
programs. Exit codes are those of `validate rsc`.";

const TEAM_HELP: &str = "\
Examples:
  millrace validate team                           # about one minute
  millrace validate team --quick --pulls 50        # about two minutes more

The guest sends through an uplink that is a team of one member and of two in turn, each of which
carries 200 Mbit/s. Before that, the member that stands for the guest is pulled --pulls times by each
algorithm while it sends: the checks tell how long it was not heard. Needs namespaces and tc. Exit codes are those of
`validate rsc`.";

/// Options where ports have several queues.
#[derive(Args)]
struct Queued {
    /// Connection counts, one after the other [default: 16; for vrss 16 for each queue].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Queues of a port, where it has more than one.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(2..=64))]
    queues: u32,
    #[command(flatten)]
    measuring: Measuring,
}

/// Options of most features.
#[derive(Args)]
struct OnAndOff {
    /// Connection counts, one after the other [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    /// MTU of every link, in bytes.
    #[arg(long, default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=9216))]
    mtu: u16,
    // Last, for its heading is that of all that follows.
    #[command(flatten)]
    hosts: Hosts,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate jumbo                          # about one minute
  millrace validate jumbo --quick --mtu 4000

The MTU of every link from sender to receiver is switched between 1500 and --mtu while the
connections keep running. First a full frame of each size is sent end to end; where it is lost, the
hop is named and nothing is measured. Needs namespaces and `ping`. Exit codes are those of `validate
rsc`.")]
struct Jumbo {
    /// Connection counts, one after the other [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    /// MTU with jumbo frames, in bytes.
    #[arg(long, default_value = "9000", value_parser = clap::value_parser!(u16).range(1501..=9216))]
    mtu: u16,
    #[command(flatten)]
    hosts: Hosts,
}

#[derive(Args)]
struct Team {
    /// Connection counts, one after the other [default: 16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    /// Pulls of the guest's member by each algorithm, before anything is measured.
    #[arg(long, default_value_t = team::PULLS, value_parser = clap::value_parser!(u16).range(1..))]
    pulls: u16,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate migration --guest target/guests/qemu          # 52 migrations, about seven minutes
  millrace validate migration --guest target/guests/qemu --quick

An emulated guest moves between two hosts with a switch each, there and back in turn. Its memory goes
through the uplinks, over MTU 1500 and 9000 and by 1 and 4 connections (QEMU's multifd) in turn.
Compared are QEMU's total time, rate and downtime, the processor time for a GiB, the longest time
without an answer to pings, and the switch's own part in it. A stream to the guest and back runs all
the time; the check fails when one of its bytes is wrong or missing, or a ping is answered twice.
--guest is the directory that `scripts/guests qemu` prints: kernel, initramfs and QEMU. --seconds is
how long the load runs before and after each migration. Needs namespaces, /dev/net/tun and `ping`.
Exit codes are those of `validate rsc`.")]
struct Migration {
    /// The guest and its QEMU, as `scripts/guests qemu` makes them.
    #[arg(long, value_name = "DIRECTORY")]
    guest: PathBuf,
    #[command(flatten)]
    measuring: Measuring,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate self                           # nine minutes, longer on a busy machine
  millrace validate self --quick                   # five tries of each kind, two minutes
  millrace validate self --json --output proof

Each try is a whole experiment with the bench, the order, the intervals and the verdict of all
others: TCP from the sender to the guest at 400 Mb/s. In half of the tries both arms are the same:
no difference may be seen. In the others one arm's sender sends 5 % less: that must be seen. A try
is undecided where its interval holds both answers, and wrong where it holds only the wrong one; it
goes on until it is known to within 2.5 %, or has 64 intervals per arm. All verdicts together hold
with 99 % confidence. Needs namespaces.
Exits with 1 when a try is wrong or more than one in twenty of a kind is undecided, and with 130
after Ctrl-C; --resume goes on.")]
struct Itself {
    /// Tries of each kind [default: 20; with --quick 5].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    tries: Option<u16>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    // What is toggled at the hosts needs hosts of our own.
    let own = |feature: &'static Feature, common: &OnAndOff| {
        common.hosts.refuse(feature.name)?;
        prove(feature, &common.options(global)?, global)
    };
    match &arguments.what {
        What::Rsc(Rsc { common, in_process }) => {
            let options = common.options(global)?;
            let named = common.hosts.receivers();
            let receivers = match *in_process || options.between.is_some() {
                true => None,
                false => Receivers::possible(named)
                    .map_err(|error| Failure::Failed(Problem::new(error.to_string())))?,
            };
            let (in_process, receiver_named) = (*in_process, named.is_some());
            let options = Options { in_process, receivers, receiver_named, ..options };
            prove(rsc::FEATURE, &options, global)
        }
        What::Limits(common) => {
            common.hosts.one_receiver(limits::FEATURE.name)?;
            prove(limits::FEATURE, &common.options(global)?, global)
        }
        What::Jumbo(jumbo) => {
            jumbo.hosts.refuse(jumbo::FEATURE.name)?;
            let options = jumbo.measuring.options(Options::new, &jumbo.connections)?;
            prove(jumbo::FEATURE, &Options { mtu: jumbo.mtu, ..options }, global)
        }
        What::Lso(common) => own(lso::FEATURE, common),
        What::Checksum(common) => own(checksum::FEATURE, common),
        What::Hotplug(common) => own(hotplug::FEATURE, common),
        What::Acl(common) => own(acl::FEATURE, common),
        What::Vlan(common) => own(vlan::FEATURE, common),
        What::Xdp(common) => {
            common.hosts.refuse("xdp")?;
            carry_out(&xdp::campaign, &common.options(global)?, global)
        }
        What::Team(Team { connections, measuring, pulls }) => {
            let options = measuring.options(Options::team, connections)?;
            let options = Options { pulls: usize::from(*pulls), ..options };
            carry_out(&team::campaign, &options, global)
        }
        What::Vmmq(queued) => carry_out(&vmmq::campaign, &queued.options(Options::vmmq)?, global),
        What::Vrss(queued) => carry_out(&vrss::campaign, &queued.options(Options::vrss)?, global),
        What::Migration(Migration { guest, measuring }) => {
            let base = |program| Options::migration(guest.clone(), program);
            carry_out(&migration::campaign, &measuring.options(base, &[])?, global)
        }
        What::Itself(Itself { tries, measuring }) => {
            let options = measuring.options(Options::itself, &[])?;
            let tries = tries.map_or(options.tries, usize::from);
            carry_out(&itself::campaign, &Options { tries, ..options }, global)
        }
    }
}

impl OnAndOff {
    fn options(&self, global: &Global) -> Result<Options, Failure> {
        let options = self.measuring.options(Options::new, &self.connections)?;
        Ok(Options { mtu: self.mtu, between: self.hosts.between(global)?, ..options })
    }
}

impl Queued {
    fn options(&self, base: fn(u32, PathBuf) -> Options) -> Result<Options, Failure> {
        self.measuring.options(|program| base(self.queues, program), &self.connections)
    }
}

fn prove(feature: &'static Feature, options: &Options, global: &Global) -> Outcome {
    carry_out(&|options| validate::campaign(feature, options), options, global)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::process;

    /// The options of `validate rsc` that a shell makes of a line.
    fn typed(line: &str) -> Options {
        let mut shell = process::Command::new("sh");
        let words = shell.args(["-c", &format!("printf '%s\n' {line}")]);
        let words = String::from_utf8(words.output().unwrap().stdout).unwrap();
        let cli = Cli::try_parse_from(words.lines()).unwrap_or_else(|why| panic!("{line}: {why}"));
        match &cli.command {
            Command::Validate(Arguments { what: What::Rsc(rsc) }) => {
                rsc.common.options(&cli.global).ok().unwrap()
            }
            _ => panic!("{line}"),
        }
    }

    /// It left out the receiver, its address and link, and the port, so that it measured something else.
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
                let between = options.between.unwrap();
                (between.to, between.link, between.port, between.socket)
            };
            assert_eq!(hosts(again), hosts(first), "{line}");
        }
    }
}
