//! The report as ntttcp-for-linux's JSON (`-j`): its keys, every value a string, MB of 10^6 bytes, `cpu` of this process alone.
//!
//! What that program always leaves at zero (calls, frames, softirqs) is filled in where it is known; `NA` is not.

use super::{Report, Throughput};
use crate::measure::Figure;
use crate::plan::{Length, Role, Transport};
use serde_json::{Value, json};

impl Report {
    /// The document.
    pub fn to_linux_json(&self) -> Value {
        let own = &self.own;
        let root = if own.role == Role::Sender { "ntttcps" } else { "ntttcpr" };
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let (bytes, calls) = (own.bytes as f64, own.calls as f64);
        let per_call = metric("B", if own.calls > 0 { three(bytes / calls) } else { na() });
        let [mb, mbps, bps] = rates(own.throughput, "");
        let per_s = if own.seconds > 0.0 { own.buffers / own.seconds } else { 0.0 };
        let mut report = json!({
            "computername": own.computer,
            "version": self.tool,
            "parameters": self.linux_parameters(),
            "threads": self.linux_threads(),
            "totalBytes": metric("MB", format!("{:.6}", bytes / 1e6)),
            "realTime": metric("s", format!("{:.6}", own.seconds)),
            "avgBytesPerCompl": per_call,
            "threadsAvgBytesPerCompl": per_call,
            "avgFrameSize": figure("B", &own.segments.average_frame_bytes),
            "throughputs": [mb, mbps, bps, metric("buffer/s", three(per_s))],
            "totalBuffers": three(own.buffers),
            "avgPacketsPerInterrupt": figure("packets/interrupt", &own.packets_per_interrupt()),
            "interrupt": figure("count/sec", &own.interrupts_per_s()),
            "interruptTotal": metric("count", whole(&own.kernel.interrupts)),
            "dpcs": figure("count/sec", &own.net_rx_softirqs_per_s()),
            "avgPacketsPerDpc": figure("packets/dpc", &own.packets_per_softirq()),
            "cycles": figure("cycles/byte", &own.cycles_per_byte),
            "packetsSent": whole(&own.segments.sent),
            "packetsReceived": whole(&own.segments.received),
            "packets_retransmitted": whole(&own.segments.retransmits),
            "errors": own.errors.to_string(),
            "cpu": figure("%", &own.process.then(|usage| Some(usage.percent_of_one_processor))),
            "bufferCount": format!("{:.0}", own.buffers),
            "bufferLen": self.settings.buffer_bytes.to_string(),
            "io": self.settings.outstanding.to_string(),
            "os": os(),
        });
        if let Some(tcp) = self.own.kernel.tcp_retransmits.value {
            #[allow(clippy::cast_precision_loss, reason = "a rate")]
            let rate = |name: &str, count: u64| {
                metric(name, format!("{:.2}", count as f64 / own.seconds.max(1e-9)))
            };
            report["tcp_retransmits"] = json!([
                metric("retrans_segs", tcp.segments.to_string()),
                rate("retrans_segments_per_sec", tcp.segments),
                rate("lost_retrans_per_sec", tcp.lost),
                rate("syn_retrans_per_sec", tcp.syn),
                rate("fast_retrans_per_sec", tcp.fast),
                rate("slowStart_retrans_per_sec", tcp.slow_start),
                rate("retrans_fail_per_sec", tcp.failed),
            ]);
        }
        json!({ root: report })
    }

    fn linux_parameters(&self) -> Value {
        let settings = &self.settings;
        let truth = |flag: bool| if flag { "True" } else { "False" };
        let bytes = |asked: Option<usize>| asked.unwrap_or(0).to_string();
        let run_time = match settings.length {
            Length::Seconds(seconds) => seconds,
            Length::Buffers(_) | Length::UntilStopped => 0,
        };
        json!({
            "sendSocketBuff": bytes(settings.send_socket_bytes),
            "recvSocketBuff": bytes(settings.receive_socket_bytes),
            "port": settings.base_port.to_string(),
            "syncPort": settings.base_port.saturating_sub(1).to_string(),
            "noSync": truth(!settings.sync),
            "waitTimeoutMilliseconds": "0",
            "async": "False",
            "verbose": "False",
            "wsa": "False",
            "useIpv6": truth(settings.family == crate::Family::V6),
            "udp": truth(settings.transport == Transport::Udp),
            "verifyData": truth(settings.verify),
            "waitAll": "False",
            "runTime": run_time.to_string(),
            "warmupTime": settings.warm_up_s.to_string(),
            "cooldownTime": settings.cool_down_s.to_string(),
            "dashNTimeout": "0",
            "bindSender": "False",
            "senderName": "NA",
            "maxActiveThreads": "0",
            "tp": "False",
            "noStdioBuffer": "False",
            "throughputBpms": "0",
            "cpuBurn": "0",
            "latencyMeasurement": truth(self.round_trips.or(self.request_times).is_some()),
            "useIOComplPorts": "NA",
            "cpuFromIdleFlag": "False",
            "getEstats": "False",
            "qosFlag": "False",
            "jitterMeasurement": "False",
            "packetSpacing": "0",
        })
    }

    fn linux_threads(&self) -> Vec<Value> {
        let threads = self.threads.iter().enumerate();
        let of = |(index, thread): (usize, &super::ThreadFigures)| {
            let kilobytes = metric("KB/s", three(thread.throughput.bytes_per_s / 1e3));
            // Its own unit stands behind this one, wrongly: whoever reads it expects it there.
            let [mb, mbps, _] = rates(thread.throughput, " bps");
            json!({
                "index": index.to_string(),
                "realTime": metric("s", three(self.own.seconds)),
                "throughputs": [kilobytes, mb, mbps],
                "avgBytesPerCompl": metric("B", thread.bytes_per_call.map_or_else(na, three)),
            })
        };
        threads.map(of).collect()
    }
}

fn rates(throughput: Throughput, behind: &str) -> [Value; 3] {
    let bytes = throughput.bytes_per_s;
    [
        metric("MB/s", three(bytes / 1e6) + behind),
        metric("mbps", three(throughput.megabits_per_s)),
        metric("Bps", three(bytes)),
    ]
}

fn metric(unit: &str, value: String) -> Value {
    json!({ "metric": unit, "value": value })
}

fn figure(unit: &str, figure: &Figure<f64>) -> Value {
    metric(unit, figure.value.map_or_else(na, three))
}

fn whole(figure: &Figure<u64>) -> String {
    figure.value.map_or_else(na, |count| count.to_string())
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

fn na() -> String {
    "NA".into()
}

fn os() -> String {
    std::fs::read_to_string("/proc/version").map_or_else(|_| na(), |text| text.trim().into())
}
