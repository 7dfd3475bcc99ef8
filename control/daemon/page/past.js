// What the daemon remembers: the last ten minutes by the second, and the last 24 hours by the minute.

/** The ranges that charts show: seconds, and name. */
export const RANGES = [
  [600, "10 min"],
  [3600, "1 h"],
  [86400, "24 h"],
];
/** Milliseconds between two questions for the same range. */
const AGAIN = { 600: 30_000, 3600: 60_000, 86400: 60_000 };

/** The history of the switch, or of a port, asked for as it is shown. */
export class Past {
  /** `port` is undefined for the switch; `ask` returns the answer to a path. */
  constructor(ask, port) {
    this.ask = ask;
    this.port = port;
    this.asked = new Map();
    this.samples = new Map();
  }

  /** The samples of a range, oldest first; empty until the daemon has answered. */
  of(range) {
    return this.samples.get(range) ?? [];
  }

  /** Asks again if the last answer is old. */
  async refresh(range, workers) {
    const now = Date.now();
    if (now - (this.asked.get(range) ?? 0) < AGAIN[range]) return;
    this.asked.set(range, now);
    const port = this.port === undefined ? "" : `&port=${encodeURIComponent(this.port)}`;
    try {
      const body = await this.ask(`/history?range_s=${range}${port}`);
      this.samples.set(range, samples(body, workers));
    } catch {
      // The port was removed, or the daemon is gone: the state shows it.
    }
  }
}

/** Turns counts into rates. `at` is the end of the time that a sample covers. */
function samples(body, workers) {
  const { from_s: from, resolution_s: step } = body;
  const rate = (values, place, factor) => {
    const value = values?.[place];
    return typeof value === "number" ? (value * factor) / step : null;
  };
  return body.ingress_bytes.map((_, place) => ({
    at: from + (place + 1) * step,
    ingress: rate(body.ingress_bytes, place, 8),
    egress: rate(body.egress_bytes, place, 8),
    dropped: rate(body.dropped_frames, place, 1),
    share: rate(body.busy_us, place, 1e-4 / Math.max(1, workers)),
    findings: body.findings?.[place] ?? null,
  }));
}

/** Samples of the daemon, and behind them those that this page has seen since. */
export function joined(kept, seen) {
  const first = seen[0]?.at ?? Infinity;
  return [...kept.filter(({ at }) => at < first - 0.5), ...seen];
}
