// The switch as a whole: traffic, drops by reason, busy time by worker, and the depth of trains.

import { Chart } from "./chart.js";
import { byId, element, redraw, say, table } from "./dom.js";
import { bits, core, percent, perSecond, reason } from "./text.js";

/** Number of drop reasons with their own line; the others are added up. */
const REASONS = 7;

export class Overview {
  constructor() {
    this.traffic = new Chart("Traffic of all ports", bits, 1000);
    this.drops = new Chart("Drops by reason", perSecond, 1);
    this.busy = new Chart("Busy time of workers", percent, 100);
    this.depth = element("div", { class: "depth" });
    byId("charts").append(this.traffic.figure, this.drops.figure, this.busy.figure, this.depth);
  }

  show(history) {
    const samples = history.samples;
    const times = samples.map((sample) => sample.at);
    const line = (name, measure) => [name, samples.map(measure)];
    this.traffic.show(times, [
      line("into the switch", (sample) => sample.ingress),
      line("out of the switch", (sample) => sample.egress),
    ]);
    this.drops.show(times, dropLines(samples));
    const workers = history.last.workers.map(({ worker, cpu }, place) =>
      line(`worker ${worker} (${core(cpu)})`, (sample) => sample.busy[place] ?? 0),
    );
    this.busy.show(times, workers);
    this.showDepth(history.last.depths, samples.at(-1)?.depth ?? []);
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

/** A line for each of the most frequent reasons in the time shown, most first, and one for the others. */
function dropLines(samples) {
  const sums = {};
  for (const { drops } of samples) {
    for (const [name, rate] of Object.entries(drops)) sums[name] = (sums[name] ?? 0) + rate;
  }
  const names = Object.keys(sums).filter((name) => sums[name] > 0);
  names.sort((one, other) => sums[other] - sums[one] || one.localeCompare(other));
  const own = names.slice(0, REASONS);
  const others = names.slice(REASONS);
  const lines = own.map((name) => [reason(name), samples.map(({ drops }) => drops[name] ?? 0)]);
  if (others.length > 0) {
    const sum = ({ drops }) => others.reduce((sum, name) => sum + (drops[name] ?? 0), 0);
    lines.push([`${others.length} other reasons`, samples.map(sum)]);
  }
  return lines.length > 0 ? lines : [["no drops", samples.map(() => 0)]];
}
