//! The report as NTttcp's XML: root `ntttcps` or `ntttcpr`, NTttcp's element names. What could not be measured has no
//! element text and says why in an attribute. MB are what the dialect's own program means: 10^6 bytes on Linux, 2^20 on
//! Windows; the other is in an element of ours, `throughput_decimal` or `throughput_binary`.

use super::{Report, Throughput};
use crate::measure::Figure;
use crate::plan::{Length, Role, Transport};
use std::fmt::{Display, Write};

impl Report {
    /// The document.
    pub fn to_xml(&self) -> String {
        let root = if self.own.role == Role::Sender { "ntttcps" } else { "ntttcpr" };
        let mut xml =
            Xml { text: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"), depth: 1 };
        let (computer, tool) = (escape(&self.own.computer), escape(&self.tool));
        let ending = serde_json::to_value(self.ending).ok();
        let ending = ending.as_ref().and_then(|value| value.as_str()).unwrap_or_default();
        let _ = writeln!(
            xml.text,
            "<{root} computername=\"{computer}\" version=\"{tool}\" ending=\"{ending}\">"
        );
        self.parameters(&mut xml);
        self.threads(&mut xml);
        self.totals(&mut xml);
        self.costs(&mut xml);
        for note in self.notes.iter().chain(&self.conditions) {
            xml.element("note", "", escape(note));
        }
        let _ = writeln!(xml.text, "</{root}>");
        xml.text
    }

    fn parameters(&self, xml: &mut Xml) {
        let settings = &self.settings;
        let truth = |flag: bool| if flag { "True" } else { "False" };
        xml.open("parameters");
        xml.element(
            "send_socket_buff",
            "",
            settings.send_socket_bytes.map_or("-1".into(), |n| n.to_string()),
        );
        xml.element(
            "recv_socket_buff",
            "",
            settings.receive_socket_bytes.map_or("-1".into(), |n| n.to_string()),
        );
        xml.element("port", "", settings.base_port);
        xml.element("sync_port", "", settings.base_port.saturating_sub(1));
        xml.element("no_sync", "", truth(!settings.sync));
        xml.element("use_ipv6", "", truth(settings.family == crate::Family::V6));
        xml.element("udp", "", truth(settings.transport == Transport::Udp));
        xml.element("verify_data", "", truth(settings.verify));
        let run_time = match settings.length {
            Length::Seconds(seconds) => seconds,
            Length::Buffers(_) | Length::UntilStopped => 0,
        };
        xml.element("run_time", "", run_time);
        xml.element("warmup_time", "", settings.warm_up_s);
        xml.element("cooldown_time", "", settings.cool_down_s);
        xml.element(
            "latency_measurement",
            "",
            truth(self.round_trips.or(self.request_times).is_some()),
        );
        xml.close("parameters");
    }

    fn threads(&self, xml: &mut Xml) {
        let kilobyte = if self.decimal_megabytes { 1e3 } else { 1024.0 };
        for (index, thread) in self.threads.iter().enumerate() {
            let _ = writeln!(xml.text, "  <thread index=\"{index}\">");
            xml.depth += 1;
            xml.element("realtime", "s", fixed(self.own.seconds));
            xml.element("throughput", "KB/s", fixed(thread.throughput.bytes_per_s / kilobyte));
            self.megabytes_per_s(xml, thread.throughput);
            xml.element("throughput", "mbps", fixed(thread.throughput.megabits_per_s));
            xml.element(
                "avg_bytes_per_compl",
                "B",
                thread.bytes_per_call.map(fixed).unwrap_or_default(),
            );
            xml.close("thread");
        }
    }

    fn megabyte(&self) -> f64 {
        if self.decimal_megabytes { 1e6 } else { 1_048_576.0 }
    }

    fn megabytes_per_s(&self, xml: &mut Xml, throughput: Throughput) {
        let megabytes = |unit| fixed(throughput.bytes_per_s / unit);
        xml.element("throughput", "MB/s", megabytes(self.megabyte()));
        match self.decimal_megabytes {
            true => xml.element("throughput_binary", "MiB/s", megabytes(1_048_576.0)),
            false => xml.element("throughput_decimal", "MB/s", megabytes(1e6)),
        }
    }

    fn totals(&self, xml: &mut Xml) {
        let own = &self.own;
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let (megabytes, calls) = (own.bytes as f64 / self.megabyte(), own.calls as f64);
        let per_s = if own.seconds > 0.0 { own.buffers / own.seconds } else { 0.0 };
        xml.element("conns_tested", "", own.connections);
        xml.element("total_bytes", "MB", format!("{megabytes:.6}"));
        xml.element("realtime", "s", format!("{:.6}", own.seconds));
        let per_call = if own.calls > 0 { fixed(own.bytes as f64 / calls) } else { String::new() };
        xml.element("avg_bytes_per_compl", "B", per_call);
        xml.figure(
            "avg_frame_size",
            "B",
            &own.segments.average_frame_bytes.then(|size| Some(fixed(*size))),
        );
        self.megabytes_per_s(xml, own.throughput);
        xml.element("throughput", "mbps", fixed(own.throughput.megabits_per_s));
        xml.element("throughput", "Bps", fixed(own.throughput.bytes_per_s));
        xml.element("total_buffers", "", fixed(own.buffers));
        xml.element("throughput", "buffers/s", fixed(per_s));
        if let Some(times) = self.request_times {
            xml.element("avg_latency", "ns", format!("{:.0}", times.mean_ns));
            xml.element("min_latency", "ns", times.min_ns);
            xml.element("max_latency", "ns", times.max_ns);
        }
    }

    fn costs(&self, xml: &mut Xml) {
        let own = &self.own;
        let three = |figure: &Figure<f64>| figure.then(|value| Some(fixed(*value)));
        xml.figure(
            "avg_packets_per_interrupt",
            "packets/interrupt",
            &three(&own.packets_per_interrupt()),
        );
        xml.figure("interrupts", "count/sec", &three(&own.interrupts_per_s()));
        xml.figure("dpcs", "count/sec", &three(&own.net_rx_softirqs_per_s()));
        xml.figure("avg_packets_per_dpc", "packets/dpc", &three(&own.packets_per_softirq()));
        xml.figure("cycles", "cycles/byte", &three(&own.cycles_per_byte));
        xml.figure("packets_sent", "", &own.segments.sent);
        xml.figure("packets_received", "", &own.segments.received);
        xml.figure("packets_retransmitted", "", &own.segments.retransmits);
        xml.element("errors", "", own.errors);
        xml.figure("cpu", "%", &own.cpu.then(|usage| Some(fixed(usage.busy_percent))));
        xml.figure("softirq", "%", &own.cpu.then(|usage| Some(fixed(usage.softirq_percent))));
        xml.figure(
            "process_cpu",
            "%",
            &own.process.then(|usage| Some(fixed(usage.percent_of_one_processor))),
        );
        let mhz = own.cycles.time_stamp_hz.then(|hz| Some(fixed(hz / 1e6)));
        xml.figure("cpu_speed", "MHz", &mhz);
        if let Some(usage) = &own.cpu.value {
            xml.element("cpu_cores", "cpu cores", usage.processors);
        }
        xml.element("bufferCount", "", format!("{:.0}", own.buffers));
        xml.element("bufferLen", "", self.settings.buffer_bytes);
        xml.element("io", "", self.settings.outstanding);
        if let Some(trips) = self.round_trips {
            let _ = writeln!(
                xml.text,
                "  <latency metric=\"ns\" avg=\"{:.0}\" min=\"{}\" p50=\"{}\" p90=\"{}\" p99=\"{}\" max=\"{}\"/>",
                trips.mean_ns, trips.min_ns, trips.p50_ns, trips.p90_ns, trips.p99_ns, trips.max_ns
            );
        }
    }
}

struct Xml {
    text: String,
    depth: usize,
}

impl Xml {
    fn open(&mut self, name: &str) {
        self.line(&format!("<{name}>"));
        self.depth += 1;
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        self.line(&format!("</{name}>"));
    }

    fn element(&mut self, name: &str, metric: &str, value: impl Display) {
        let metric =
            if metric.is_empty() { String::new() } else { format!(" metric=\"{metric}\"") };
        self.line(&format!("<{name}{metric}>{value}</{name}>"));
    }

    fn figure<T: Display>(&mut self, name: &str, metric: &str, figure: &Figure<T>) {
        match (&figure.value, &figure.reason) {
            (Some(value), _) => self.element(name, metric, value),
            (None, reason) => {
                let reason = escape(reason.as_deref().unwrap_or("not measured"));
                self.line(&format!("<{name} absent=\"{reason}\"/>"));
            }
        }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:width$}{text}", "", width = 2 * self.depth);
    }
}

fn fixed(value: f64) -> String {
    format!("{value:.3}")
}

/// Text for an element or an attribute; characters that XML 1.0 has no place for are left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => {}
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_stays_itself_but_for_controls(text in ".*") {
            let document = format!("<a b=\"{0}\">{0}</a>", escape(&text));
            let parsed = roxmltree::Document::parse(&document).unwrap();
            let wanted: String = text
                .chars()
                .filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'))
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            prop_assert_eq!(parsed.root_element().attribute("b").unwrap(), wanted.as_str());
        }
    }
}
