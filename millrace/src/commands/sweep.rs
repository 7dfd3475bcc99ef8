//! `millrace sweep`: measures throughput by block size and connections, in both directions.

use super::existing_hosts::Hosts;
use super::measuring::{Measuring, carry_out};
use crate::global::Global;
use crate::output::{Failure, Outcome};
use clap::Args;
use config::VmmqMode;
use lab::experiments::sweep;
use lab::load::Sockets;
use lab::options::Options;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace sweep                                   # 110 loads, about ten minutes
  millrace sweep --quick
  millrace sweep --connections 1,32 --blocks 4096,65536 --repetitions 10
  millrace sweep --quick --queues 1,2              # each load with one queue and with two, in turn
  millrace sweep --chelsio                         # the grid of Chelsio's paper on d.VMMQ, static against dynamic
  millrace sweep --mtu 9000 --receive-buffer 131072 --queues 4 --vmmq static,dynamic
  millrace sweep --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900
  millrace sweep --resume millrace-report-2026-11-21T214000Z

Each number given to --queues is an arm, and with --vmmq each of its values: both ports are reopened
with it while the connections continue, and the interval starts a second later. The switch has as
many workers as the largest number of queues, but no more than there are processors. Verdicts need
five repetitions or more. With --sender the hosts are existing ones, and nothing is changed at the
running switch; the receiver only receives. For the other way swap the two, and name the uplink with
--port. Needs namespaces or existing hosts. Exit codes are those of `validate rsc`; --resume
continues after Ctrl-C.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,2,4,8,16; with --quick 1,4,16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Block sizes in bytes [default: 512 to 524288, doubling; with --quick 512,4096,32768,524288].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    blocks: Vec<u32>,
    /// Numbers of queues of the uplink and the vNIC, one arm each [default: one queue, no arms].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Vec<u32>,
    /// Values of `vmmq`, one arm each: static, dynamic [default: no arms]. Needs --queues.
    #[arg(long, value_delimiter = ',', value_parser = vmmq, requires = "queues")]
    vmmq: Vec<VmmqMode>,
    /// MTU of every link, in bytes [default: 1500].
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9216))]
    mtu: Option<u16>,
    /// Bytes of the receiver's socket buffers, NTttcp's -rb [default: the kernel's].
    #[arg(long, alias = "rb", value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    receive_buffer: Option<u32>,
    /// Bytes of the sender's socket buffers, NTttcp's -sb [default: the kernel's].
    #[arg(long, alias = "sb", value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    send_buffer: Option<u32>,
    /// The commands of Chelsio's paper "Windows d.VMMQ Performance": 1 to 16 connections, 512 B to
    /// 512 KiB, MTU 9000, -rb 128k, -sb 256k, four queues, static against dynamic. Options typed
    /// beside it override its values.
    #[arg(long)]
    chelsio: bool,
    #[command(flatten)]
    measuring: Measuring,
    // Last, because its heading applies to everything after it.
    #[command(flatten)]
    hosts: Hosts,
}

/// The socket buffers of Chelsio's paper.
const CHELSIO: Sockets = Sockets { receive: Some(128 << 10), send: Some(256 << 10) };

fn vmmq(text: &str) -> Result<VmmqMode, String> {
    let modes = [VmmqMode::Static, VmmqMode::Dynamic];
    let found = modes.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| format!("{text:?} is neither static nor dynamic"))
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    arguments.hosts.one_receiver("sweep")?;
    arguments.refuse_changes()?;
    let mut options = arguments.measuring.options(Options::sweep, &arguments.connections)?;
    if !arguments.blocks.is_empty() {
        options.sweep.blocks.clone_from(&arguments.blocks);
    }
    options.queues.clone_from(&arguments.queues);
    options.sweep.vmmq.clone_from(&arguments.vmmq);
    if arguments.chelsio {
        options.mtu = 9000;
        options.sweep.sockets = CHELSIO;
        if options.queues.is_empty() {
            options.queues.push(4);
        }
        if options.sweep.vmmq.is_empty() {
            options.sweep.vmmq = vec![VmmqMode::Static, VmmqMode::Dynamic];
        }
    }
    options.mtu = arguments.mtu.unwrap_or(options.mtu);
    let sockets = &mut options.sweep.sockets;
    sockets.receive = arguments.receive_buffer.or(sockets.receive);
    sockets.send = arguments.send_buffer.or(sockets.send);
    options.existing_hosts = arguments.hosts.existing_hosts(global)?;
    options.queues.sort_unstable();
    options.queues.dedup();
    carry_out(&sweep::campaign, &options, global)
}

impl Arguments {
    /// Refuses options that would change ports or links of existing hosts.
    fn refuse_changes(&self) -> Result<(), Failure> {
        let ports = "ports that are reopened with other queues, which interrupts a switch in use";
        let links = "links of existing hosts, whose MTU is theirs";
        let queues = (!self.queues.is_empty()).then_some("--queues");
        self.hosts.refuse_option(queues, ports)?;
        self.hosts.refuse_option(self.chelsio.then_some("--chelsio"), ports)?;
        self.hosts.refuse_option(self.mtu.map(|_| "--mtu"), links)
    }
}
