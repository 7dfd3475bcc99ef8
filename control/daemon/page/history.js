// What the page has seen since it was opened: differences of counters become rates. What was before has the daemon
// (past.js).

/** Samples of the whole switch: ten minutes. */
const OF_SWITCH = 600;
/** Samples of each port: one minute. */
const OF_PORT = 60;

const add = (list, sample, most) => {
  list.push(sample);
  if (list.length > most) list.shift();
};

/** The growth of a counter per second; a counter that was reset has grown by its whole value. */
const growth = (now, before, seconds) => Math.max(0, now >= before ? now - before : now) / seconds;

export class History {
  constructor() {
    this.forget();
  }

  /** A restarted daemon counts from zero. */
  forget() {
    this.last = null;
    this.samples = [];
    this.ofPort = new Map();
  }

  /** Takes in a state; false: it is the same as the last. */
  take(state) {
    const last = this.last;
    if (last && state.at_ms === last.at_ms) return false;
    if (last && state.at_ms < last.at_ms) this.forget();
    const before = this.last;
    this.last = state;
    if (before) this.compare(before, state, (state.at_ms - before.at_ms) / 1000);
    return true;
  }

  compare(before, state, seconds) {
    // By the daemon's clock, as in its history.
    const at = (state.unix_ms ?? Date.now()) / 1000;
    const earlier = new Map(before.ports.map((port) => [port.name, port]));
    const sample = { at, ingress: 0, egress: 0, dropped: 0, findings: 0, drops: {}, depth: state.depths.map(() => 0) };
    for (const port of state.ports) {
      const was = earlier.get(port.name);
      sample.ingress += port.rates.ingress_bits_per_s;
      sample.egress += port.rates.egress_bits_per_s;
      sample.dropped += port.rates.drops_per_s;
      if (was) this.comparePort(sample, port, was, seconds);
    }
    for (const name of this.ofPort.keys()) {
      if (!earlier.has(name)) this.ofPort.delete(name);
    }
    const busy = (worker, place) => growth(worker.busy_ns, before.workers[place]?.busy_ns ?? 0, seconds) / 1e7;
    sample.busy = state.workers.map(busy);
    sample.share = mean(sample.busy, (share) => share);
    sample.findings = state.findings.filter(({ severity }) => severity !== "info").length;
    add(this.samples, sample, OF_SWITCH);
  }

  comparePort(sample, port, was, seconds) {
    const own = { at: sample.at, ingress: port.rates.ingress_bits_per_s, egress: port.rates.egress_bits_per_s, drops: 0 };
    own.dropped = port.rates.drops_per_s;
    own.frames = port.rates.egress_frames_per_s;
    own.merged = growth(port.coalesced_packets, was.coalesced_packets, seconds);
    own.trains = growth(port.coalescing_events, was.coalescing_events, seconds);
    for (const [reason, dropped] of Object.entries(port.drops ?? {})) {
      const rate = growth(dropped, was.drops?.[reason] ?? 0, seconds);
      sample.drops[reason] = (sample.drops[reason] ?? 0) + rate;
      own.drops += rate;
    }
    port.depth.forEach((trains, place) => {
      sample.depth[place] += growth(trains, was.depth[place] ?? 0, seconds);
    });
    if (!this.ofPort.has(port.name)) this.ofPort.set(port.name, []);
    add(this.ofPort.get(port.name), own, OF_PORT);
  }

  /** The last samples of a port. */
  port(name) {
    return this.ofPort.get(name) ?? [];
  }
}

/** The mean of one measure over samples. */
export const mean = (samples, measure) =>
  samples.length === 0 ? 0 : samples.reduce((sum, sample) => sum + measure(sample), 0) / samples.length;
