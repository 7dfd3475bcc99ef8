// The switch as a whole: traffic, drops by reason, busy time by worker, and the depth of trains.

import { Chart } from "./chart.js";
import { byId, element, redraw, say, table } from "./dom.js";
import { bits, core, percent, perSecond, reason } from "./text.js";

/** Longest time, in seconds, of which this page knows reasons and workers; the daemon keeps their sums. */
const LIVE = 600;
/** Number of drop reasons with their own line; the others are added up. */
const REASONS = 7;

export class Overview {
  /** `ranges` makes the buttons for the time shown. */
  constructor(ranges) {
    byId("overview-head").append(ranges.buttons());
    this.traffic = new Chart("Traffic of all ports", bits, 1000, ranges);
    this.drops = new Chart("Drops by reason", perSecond, 1, ranges);
    this.busy = new Chart("Busy time of workers", percent, 100, ranges);
    this.depth = element("div", { class: "depth" });
    byId("charts").append(this.traffic.figure, this.drops.figure, this.busy.figure, this.depth);
  }

  /** Shows samples of the last `span` seconds; `history` has what this page has seen. */
  show(history, samples, span) {
    const times = samples.map(({ at }) => at);
    const line = (name, measure) => [name, samples.map((sample) => measure(sample) ?? null)];
    const into = line("into the switch", ({ ingress }) => ingress);
    this.traffic.show(times, [into, line("out of the switch", ({ egress }) => egress)], span);
    this.drops.show(times, [line("all reasons", ({ dropped }) => dropped), ...dropLines(samples)], span);
    const worker = ({ worker, cpu }, place) => line(`worker ${worker} (${core(cpu)})`, ({ busy }) => busy?.[place]);
    const workers = span > LIVE ? [] : history.last.workers.map(worker);
    this.busy.show(times, [line("mean of all workers", ({ share }) => share), ...workers], span);
    this.showDepth(history.last.depths, history.samples.at(-1)?.depth ?? []);
  }

  showDepth(depths, rates) {
    redraw(this.depth, depths, () => [
      table("Trains by number of segments", ["Segments", "Trains", "Share"], depths.map((depth) => [depth, "", ""])),
    ]);
    const all = rates.reduce((sum, rate) => sum + rate, 0);
    this.depth.querySelectorAll("tbody tr").forEach((row, place) => {
      const rate = rates[place] ?? 0;
      const share = all > 0 ? (100 * rate) / all : 0;
      say(row.children[1], perSecond(rate));
      const cell = row.children[2];
      if (!cell.firstElementChild) cell.replaceChildren(element("span", { class: "bar" }), element("span"));
      cell.firstElementChild.style.width = `${share / 2}%`;
      say(cell.lastElementChild, percent(share));
    });
  }
}

/** A line for each of the most frequent reasons since the page was opened, most first, and one for the others. */
function dropLines(samples) {
  const sums = {};
  for (const { drops } of samples) {
    for (const [name, rate] of Object.entries(drops ?? {})) sums[name] = (sums[name] ?? 0) + rate;
  }
  const names = Object.keys(sums).filter((name) => sums[name] > 0);
  names.sort((one, other) => sums[other] - sums[one] || one.localeCompare(other));
  const own = names.slice(0, REASONS);
  const others = names.slice(REASONS);
  const rate = (name, drops) => (drops ? (drops[name] ?? 0) : null);
  const lines = own.map((name) => [reason(name), samples.map(({ drops }) => rate(name, drops))]);
  if (others.length > 0) {
    const sum = ({ drops }) => drops ? others.reduce((sum, name) => sum + (drops[name] ?? 0), 0) : null;
    lines.push([`${others.length} other reasons`, samples.map(sum)]);
  }
  return lines;
}
