// Events as they come, newest first. Events that differ only in the port are one line with a count.

import { byId, element, redraw, say } from "./dom.js";
import { count as written, duration } from "./text.js";

/** Number of ports of a folded line that are named. */
const NAMED = 60;

export class Events {
  constructor() {
    /** Lines that a person has unfolded. */
    this.unfolded = new Set();
  }

  show({ events, uptime_s: now }) {
    const lines = folded(events);
    // Without the times: a line stays the same element as long as nothing is new.
    redraw(byId("event-list"), lines.map(({ kind, count, texts }) => [kind, count, texts]), () =>
      lines.length > 0 ? lines.map((line) => this.entry(line)) : [element("li", {}, "Nothing has happened yet.")],
    );
    const ago = (at) => (now - at < 1 ? "now" : `${duration(now - at)} ago`);
    lines.forEach(({ at }, place) => say(byId("event-list").children[place].firstElementChild, ago(at)));
  }

  entry({ kind, count, texts }) {
    const times = count > 1 ? [element("b", {}, ` ${written(count)} times`)] : [];
    const head = [element("span", { class: "ago" }), ` ${texts.length > 1 ? kind : texts[0]}`, ...times];
    if (texts.length < 2) return element("li", {}, ...head);
    const more = texts.length > NAMED ? [`and ${texts.length - NAMED} more`] : [];
    const list = [...texts.slice(0, NAMED), ...more].map((text) => element("li", {}, text));
    const details = element("details", { open: this.unfolded.has(kind) }, element("summary", {}, `${texts.length} ports`), element("ul", {}, ...list));
    details.addEventListener("toggle", () => {
      if (details.open) this.unfolded.add(kind);
      else this.unfolded.delete(kind);
    });
    return element("li", {}, ...head, details);
  }
}

/** One line for events whose texts are the same but for the port's name, newest first. */
function folded(events) {
  const lines = new Map();
  for (const { at_s: at, count, text } of events.toReversed()) {
    const kind = text.replace(/\bport [^\s:]+/gu, "port …");
    const line = lines.get(kind) ?? { kind, at, count: 0, texts: [] };
    line.count += count;
    line.texts.push(text);
    lines.set(kind, line);
  }
  return [...lines.values()];
}
