// What a change did to a port: the ten seconds before it beside the ten after.

import { element, redraw, table } from "./dom.js";
import { mean } from "./history.js";
import { bits, perSecond } from "./text.js";

/** Number of samples before a change, and after it. */
const STRIP = 10;

/** Name, measure of a sample, and format. */
const MEASURES = [
  ["Into the switch", (sample) => sample.ingress, bits],
  ["Out of the switch", (sample) => sample.egress, bits],
  ["Frames out", (sample) => sample.frames, perSecond],
  ["Segments merged", (sample) => sample.merged, perSecond],
  ["Trains", (sample) => sample.trains, perSecond],
  ["Drops", (sample) => sample.drops, perSecond],
];

export class Strip {
  constructor() {
    this.body = element("div");
  }

  /** Shows the last change of a port, if there is one: `samples` are those until now, `change.samples` those before it. */
  show(change, samples) {
    if (!change) return;
    const before = change.samples.slice(-STRIP);
    const changedAt = change.samples.at(-1)?.at ?? 0;
    const after = samples.filter(({ at }) => at > changedAt).slice(0, STRIP);
    const written = (of, measure, format) => (of.length > 0 ? format(mean(of, measure)) : "waiting");
    const rows = MEASURES.map(([name, measure, format]) => [name, written(before, measure, format), written(after, measure, format)]);
    const heads = ["Mean", `${before.length} s before`, `${after.length} s after`];
    redraw(this.body, [change.text, heads, rows], () => [table(`Before and after. ${change.text}`, heads, rows)]);
  }
}
