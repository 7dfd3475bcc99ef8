// Answers as a daemon with `PORTS` ports would that has run for a day. Their load changes each second. Two are uplinks; one port
// in fifty drops frames, one in a hundred is down.
const began = Date.now();
const vlans = PORTS < 10 ? 2 : PORTS < 100 ? 6 : 40;
const names = ["web", "db", "cache", "mail", "build"];
const nameOf = (n) => n < 2 ? `uplink${n}` : PORTS < 10 ? names[n - 2] : `vm${n}`;
const wave = (at, n) => 1 + Math.sin(at / 4000 + n) * 0.7 + Math.sin(at / 90 + 2 * n) * 0.25;
const port = (n, round) => {
    const name = nameOf(n), isUplink = n < 2, drops = n % 50 === 4, isDown = n % 97 === 5;
    const bits = isDown ? 0 : Math.round(wave(round + 8e4, n) * (isUplink ? 4e5 * PORTS : 1e6 * (n % 17)) + (n % 3));
    return {name, device: isUplink ? `packet eth${n + 1}` : `vhost-user /run/millrace/${name}.sock`, role: isUplink ? "uplink" : "vnic",
        state: isDown ? "down" : "up", reason: isDown ? "waiting for a guest" : undefined,
        vlan: isUplink ? "trunk 1-4094" : n % 23 === 6 ? "trunk 10,20" : `access ${10 * (1 + n % vlans)}`,
        rsc: "ndis", coalesced_packets: round * n, coalescing_events: round * 10,
        rates: {ingress_frames_per_s: n, ingress_bits_per_s: bits, egress_frames_per_s: n, egress_bits_per_s: Math.round(bits * 0.6),
            drops_per_s: drops ? 7 : 0},
        drops: drops ? {storm: 7 * round, full: round} : {}, depth: [round, 2 * round, 0, 0, 0, 0, 9 * round, 0],
        queues: [[n % 4, (n * round) % 17]]};
};
// A minute without the daemon is a gap.
const past = (path) => {
    const range = Number(/range_s=(\d+)/.exec(path)[1]), step = range > 600 ? 60 : 1, count = range / step;
    const now = Math.floor(Date.now() / 1000 / step) * step, from_s = now - range;
    const n = path.includes("port=") ? 3 : 0;
    const values = (factor) => Array.from({length: count}, (_, place) => place === count - 9 && step === 60 ? null
        : Math.max(0, Math.round(wave((from_s + place * step) % 86400, n) * factor * step)));
    return {from_s, resolution_s: step, ingress_bytes: values(1e6 * PORTS), egress_bytes: values(6e5 * PORTS), ingress_frames: values(9e3),
        egress_frames: values(9e3), dropped_frames: values(7).map((value, place) => place % 50 > 40 ? value : 0),
        busy_us: values(19e5), findings: values(1).map((_, place) => place > count * 0.7 ? 2 : 0)};
};
const detail = (path) => ({name: decodeURIComponent(path.slice(7)), mtu: 1500, mac: "02:00:00:00:00:07", held_mac: null,
    offloads: ["csum", "tso4", "tso6"], degraded: [], spread: null,
    queues: [{queue: 0, worker: 1, cpu: 1, load_percent: 12, entries: 128}],
    guest: null, counters: {}});
const finding = (severity, error, seen, wanted, remedy) => ({severity, kind: "k", error, seen, wanted, remedy});
const spark = (n) => Array.from({length: 30}, (_, place) => Math.min(35, Math.max(0, Math.round(wave(place * 120, n) * 18))).toString(36)).join("");
const flow = (n) => ({from: nameOf(n % PORTS), to: n % 7 === 3 ? undefined : nameOf((n + 1) % PORTS), vlan: 10 * (1 + n % vlans), protocol: n % 5 === 4 ? "udp" : "tcp",
    source_mac: "02:00:00:00:00:07", destination_mac: "02:00:00:00:00:08", source: `10.0.${n}.1`, destination: n % 6 === 5 ? "fd00::7" : `10.0.${n}.2`,
    source_port: 40000 + n, destination_port: 443, bytes: n % 7 === 3 ? 0 : Math.round(4e9 / (n + 1)), frames: n % 7 === 3 ? 0 : 9e5, segments: 9e6, resent: n % 5 === 4 || n % 2 ? undefined : 700 * n, sampled: 3e3,
    bits_per_s: Math.round(8e8 / (n + 1)), drops: n % 7 === 3 ? {acl_denied: 40 * n, storm: 3} : {}, drops_per_s: 0, first_seen_s: 90, last_seen_s: n % 4,
    carried_by: n % 2 ? "kernel" : "switch", trace: "tcp 10.0.0.1:1 > 10.0.0.2:443"});
globalThis.fetch = async (path) => {
    const at_ms = Date.now() - began, round = Math.ceil(at_ms / 1000);
    const answer = (body) => new Response(JSON.stringify(body));
    if (path.startsWith("/history")) return answer(past(path));
    if (path.startsWith("/flows")) return answer({enabled: true, first_per_ms: 16, then_one_in: 256, matching: 300, flows: Array.from({length: 50}, (_, n) => flow(n)), other_bytes: 0});
    if (path === "/sparks") return answer(Object.fromEntries(Array.from({length: PORTS}, (_, n) => [nameOf(n), spark(n)])));
    if (path.startsWith("/ports/")) return answer(detail(path));
    if (path !== "/state") return new Response("{}", {status: 404});
    const ports = Array.from({length: PORTS}, (_, n) => port(n, round)).sort((one, other) => one.name < other.name ? -1 : 1);
    const workers = [0, 1, 2, 3].map((worker) => ({worker, cpu: worker, sleeps: 0, busy_ns: at_ms * 2e5 * (worker + 1)}));
    const depths = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65+"];
    const events = [...ports.slice(0, 54).map(({name}) => ({at_s: 86000, count: 1, text: `port ${name} is up`})),
        {at_s: 86100, count: 3, text: "<img src=x onerror=alert(1)>"},
        {at_s: 86399, count: 1, text: "port db is down: waiting for a guest"}];
    return answer({version: "0.1.0", uptime_s: 86400 + round, at_ms, unix_ms: Date.now(), may_change: true, macs: PORTS, workers, events,
        findings: [finding("warning", "db has MTU 9000, uplink0 has 1500", "1500", "9000", "raise uplink0 or lower db"),
            finding("warning", "cache has no MAC address", "no mac", "`mac` in [[port]]", "set `mac`")],
        depths, ports});
};
