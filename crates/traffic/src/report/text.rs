//! The report for people, laid out like NTttcp's.

use super::{Ending, PeerKind, Report, Side};
use crate::measure::Figure;
use crate::plan::Role;
use std::fmt::Write;

impl Report {
    /// The familiar tables. MB is 2^20 bytes, said so; a figure that could not be measured is a dash, and its reason
    /// stands below.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.threads_table(&mut text);
        for (side, whose) in [(Some(&self.own), "this end"), (self.peer.as_ref(), "the other end")]
        {
            if let Some(side) = side {
                side_tables(&mut text, side, whose);
            }
        }
        self.extras(&mut text);
        for line in self.conditions.iter().map(|line| format!("Condition: {line}")) {
            put(&mut text, &line);
        }
        for line in self.notes.iter().map(|line| format!("Note: {line}")) {
            put(&mut text, &line);
        }
        text
    }

    fn threads_table(&self, text: &mut String) {
        put(text, "Thread  Time(s) Throughput(KB/s) Avg B / Compl");
        put(text, "======  ======= ================ =============");
        for (number, thread) in self.threads.iter().enumerate() {
            let _ = writeln!(
                text,
                "{number:6} {:8.3} {:16.3} {:>13}",
                self.own.seconds,
                thread.throughput.bytes_per_s / 1024.0,
                thread.bytes_per_call.map_or("-".into(), |bytes| format!("{bytes:.3}")),
            );
        }
    }

    fn extras(&self, text: &mut String) {
        let requests = if self.own.role == Role::Sender { "Sends" } else { "Reads" };
        let timed = [("Round trips of one byte", self.round_trips), (requests, self.request_times)];
        for (what, trips) in timed.iter().filter_map(|(what, times)| Some((what, (*times)?))) {
            let _ = writeln!(
                text,
                "\n{what}, ns: {} measured, min {}, avg {:.0}, p50 {}, p90 {}, p99 {}, max {}",
                trips.count,
                trips.min_ns,
                trips.mean_ns,
                trips.p50_ns,
                trips.p90_ns,
                trips.p99_ns,
                trips.max_ns
            );
        }
        if let Some(lost) = self.datagrams_lost {
            let _ = writeln!(text, "\nDatagrams lost on the way: {lost}");
        }
        if let (Some(missing @ 1..), Some((sender, _))) = (self.bytes_missing, self.ends()) {
            #[allow(clippy::cast_precision_loss, reason = "a share for people")]
            let share = 100.0 * missing as f64 / sender.whole_run_bytes.max(1) as f64;
            let _ = writeln!(
                text,
                "\nNOT ARRIVED: {missing} of {} bytes that the sender counted ({share:.2} %); what counts is what the receiver got",
                sender.whole_run_bytes
            );
        }
        let ending = match self.ending {
            Ending::Complete => return put(text, ""),
            Ending::StoppedByUser => "stopped by the user: the figures are those until then",
            Ending::StoppedByPeer => {
                "stopped by the other end before its time: the figures are those until then"
            }
            Ending::PeerLost => "the other end was lost: the figures are those until then",
        };
        let _ = writeln!(text, "\nINTERRUPTED: {ending}");
    }
}

fn side_tables(text: &mut String, side: &Side, whose: &str) {
    let (verb, receiver) = match side.role {
        Role::Sender => ("sent", false),
        Role::Receiver => ("received", true),
    };
    let name: String = side.computer.chars().filter(|c| !c.is_control()).take(200).collect();
    let _ = writeln!(
        text,
        "\n#####  {} ({whose}, {name}): bytes {verb} by the application  #####\n",
        if receiver { "Receiver" } else { "Sender" }
    );
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let megabytes = side.bytes as f64 / 1_048_576.0;
    table(
        text,
        &[
            ("Bytes(MEG, 2^20)", format!("{megabytes:.6}")),
            ("realtime(s)", format!("{:.3}", side.seconds)),
            ("Avg Frame Size", number(&side.segments.average_frame_bytes)),
            ("Throughput(MB/s, 2^20)", format!("{:.3}", side.throughput.mebibytes_per_s)),
            ("Throughput(Mbit/s, 10^6)", format!("{:.3}", side.throughput.megabits_per_s)),
        ],
    );
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let buffers_per_s = if side.seconds > 0.0 { side.buffers / side.seconds } else { 0.0 };
    table(
        text,
        &[
            ("Throughput(Buffers/s)", format!("{buffers_per_s:.3}")),
            ("Cycles/Byte", number(&side.cycles_per_byte)),
            ("Cycles/Byte(hardware)", number(&side.hardware_cycles_per_byte)),
            ("Buffers", format!("{:.3}", side.buffers)),
        ],
    );
    cost_tables(text, side);
    host_lines(text, side);
    if let Some(verified) = side.verified_bytes {
        let _ = writeln!(
            text,
            "Verified: {verified} of {} bytes of the whole run were right",
            side.whole_run_bytes
        );
    }
    reasons(text, side);
}

fn cost_tables(text: &mut String, side: &Side) {
    table(
        text,
        &[
            ("NET_RX(count/s)", number(&side.net_rx_softirqs_per_s())),
            ("Pkts(num/NET_RX)", number(&side.packets_per_softirq())),
            ("Intr(count/s)", number(&side.interrupts_per_s())),
            ("Pkts(num/intr)", number(&side.packets_per_interrupt())),
        ],
    );
    table(
        text,
        &[
            ("Packets Sent", whole(&side.segments.sent)),
            ("Packets Received", whole(&side.segments.received)),
            ("Retransmits", whole(&side.segments.retransmits)),
            ("Errors", side.errors.to_string()),
            ("Avg. CPU %", share(side, |cpu| cpu.busy_percent)),
            ("softirq %", share(side, |cpu| cpu.softirq_percent)),
            ("steal %", share(side, |cpu| cpu.steal_percent)),
            (
                "Process CPU %",
                number(&side.process.then(|usage| Some(usage.percent_of_one_processor))),
            ),
        ],
    );
}

/// What the whole host counted, beside this run's connections.
fn host_lines(text: &mut String, side: &Side) {
    if let Some(tcp) = side.kernel.tcp_retransmits.value {
        let _ = writeln!(
            text,
            "Whole host: {} TCP segments sent again (lost {}, syn {}, fast {}, slow start {}, failed {})",
            tcp.segments, tcp.lost, tcp.syn, tcp.fast, tcp.slow_start, tcp.failed
        );
    }
    if let Some(interface) = side.kernel.interface.value {
        let (sent, received) = (interface.sent_packets, interface.received_packets);
        let _ = writeln!(text, "Interface: {sent} packets sent, {received} received");
    }
}

fn share(side: &Side, of: impl FnOnce(&crate::measure::CpuUsage) -> f64) -> String {
    number(&side.cpu.then(|usage| Some(of(usage))))
}

/// A dash where there is no number.
fn number(figure: &Figure<f64>) -> String {
    figure.value.map_or("-".into(), |value| format!("{value:.3}"))
}

fn whole(figure: &Figure<u64>) -> String {
    figure.value.map_or("-".into(), |value| value.to_string())
}

/// Heads, a rule and one row, each column as wide as its wider part.
fn table(text: &mut String, columns: &[(&str, String)]) {
    let width = |(head, value): &(&str, String)| head.len().max(value.len());
    let row = |cell: &dyn Fn(&(&str, String)) -> String| {
        let cells: Vec<String> =
            columns.iter().map(|c| format!("{:>width$}", cell(c), width = width(c))).collect();
        cells.join(" ")
    };
    put(text, &row(&|(head, _)| (*head).to_string()));
    put(text, &row(&|column| "=".repeat(width(column))));
    put(text, &row(&|(_, value)| value.clone()));
    put(text, "");
}

/// Why a dash is a dash.
fn reasons(text: &mut String, side: &Side) {
    let all = [
        ("Avg Frame Size", side.segments.average_frame_bytes.reason.clone()),
        ("Cycles/Byte", side.cycles_per_byte.reason.clone()),
        ("Cycles/Byte(hardware)", side.hardware_cycles_per_byte.reason.clone()),
        ("NET_RX", side.kernel.net_rx_softirqs.reason.clone()),
        ("Intr", side.kernel.interrupts.reason.clone()),
        ("Packets Sent", side.segments.sent.reason.clone()),
        ("Packets Received", side.segments.received.reason.clone()),
        ("Retransmits", side.segments.retransmits.reason.clone()),
        ("Avg. CPU %", side.cpu.reason.clone()),
        ("Process CPU %", side.process.reason.clone()),
    ];
    for (name, reason) in all.iter().filter_map(|(name, reason)| Some((name, reason.as_ref()?))) {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(300).collect();
        let _ = writeln!(text, "  {name} -: {reason}");
    }
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

impl Report {
    /// One line: who received how much.
    pub fn summary(&self) -> String {
        let throughput = self.own.throughput;
        let verb = if self.own.role == Role::Sender { "sent" } else { "received" };
        let peer = match self.peer_kind {
            PeerKind::Millrace => "Millrace",
            PeerKind::Ntttcp => "NTttcp",
            PeerKind::Unsynchronised => "unsynchronised",
        };
        format!(
            "{verb} {:.3} MB/s (2^20), {:.3} Mbit/s over {:.3} s; peer: {peer}",
            throughput.mebibytes_per_s, throughput.megabits_per_s, self.own.seconds
        )
    }
}
