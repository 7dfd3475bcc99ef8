// The trace box: what the switch would do with a frame that enters by a port, step by step, and why.
//
// The daemon's own code decides, on a copy of the switch; the page shows the result.

import { byId, element, redraw, say } from "./dom.js";
import { byName, counted, reason } from "./text.js";

/** Limits of ports and drops that the verdict names, and of steps listed: a flood of a large switch has more. */
const NAMED = 6;
const LISTED = 200;
/** Timeout of an answer: the daemon begins two traces a second, for all pages together. */
const TIMEOUT_MS = 60_000;

export class Trace {
  constructor() {
    this.chosen = "";
    this.isAsking = false;
    this.port = byId("trace-port");
    this.port.addEventListener("input", () => {
      this.chosen = this.port.value;
    });
    byId("trace-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  /** The next frame enters by this port. */
  enterBy(name) {
    this.chosen = name;
    this.port.value = name;
  }

  /** Traces a frame that enters by a port, and moves to the answer. */
  of(port, frame) {
    this.enterBy(port);
    byId("trace-frame").value = frame;
    byId("trace-frame").focus({ preventScroll: true });
    byId("trace").scrollIntoView({ block: "nearest" });
    this.ask();
  }

  /** Offers the existing ports. */
  show({ ports }) {
    const names = ports.map(({ name }) => name);
    const option = (name) => element("option", { selected: name === this.chosen }, name);
    redraw(this.port, names, () => [...names].sort(byName).map(option));
  }

  async ask() {
    if (this.isAsking) return;
    this.isAsking = true;
    this.answer("Waiting for the switch.", false);
    try {
      const body = JSON.stringify({ port: this.port.value, frames: [byId("trace-frame").value] });
      const headers = { "content-type": "application/json" };
      const answer = await fetch("/trace", { method: "POST", headers, body, signal: AbortSignal.timeout(TIMEOUT_MS) });
      const told = await answer.json();
      if (answer.ok) this.tell(told);
      else this.refuse(told.detail ?? `The daemon answered ${answer.status}.`);
    } catch (error) {
      this.refuse(`The daemon does not answer: ${error.message}`);
    } finally {
      this.isAsking = false;
    }
  }

  tell(trace) {
    this.answer(verdict(trace), false);
    const steps = trace.turns.flatMap((turn) => turn.steps);
    const more = steps.length - LISTED;
    byId("trace-steps").replaceChildren(...steps.slice(0, LISTED).map(entry));
    if (more > 0) byId("trace-steps").append(element("li", {}, `and ${counted(more, "step")} more`));
    byId("trace-steps").hidden = false;
  }

  refuse(detail) {
    // The first line names the column; a mark below it would be elsewhere where the line wraps.
    const lines = detail.split("\n").filter((line) => !/^\s*\^+$/.test(line));
    this.answer(lines.join("\n"), true);
    byId("trace-steps").hidden = true;
  }

  answer(text, isRefused) {
    say(byId("trace-verdict"), text);
    byId("trace-verdict").classList.toggle("refused", isRefused);
  }
}

/** Where the frame leaves and where it is dropped, in one sentence. */
function verdict({ port, turns }) {
  const delivered = turns.flatMap((turn) => turn.delivered.map((frame) => frame.port));
  const drops = turns.flatMap((turn) => turn.drops);
  const leaves = distinct(delivered.filter((name) => name !== port));
  const isUnknown = turns.some((turn) => turn.delivered.some((frame) => frame.unknown_destination));
  const parts = [
    ...(leaves.length > 0 ? [`${isUnknown ? "destination unknown, may leave through" : "leaves through"} ${listed(leaves)}`] : []),
    ...(drops.length > 0 ? [`dropped at ${listed(distinct(drops.map(drop)))}`] : []),
    // A frame that leaves through the port it came from is for its sender.
    ...(delivered.includes(port) ? ["its sender is answered"] : []),
  ];
  return `From ${port}: ${parts.join("; ") || "it is delivered nowhere"}.`;
}

const drop = ({ port, reason: name, text }) => `${port}, ${reason(name)} (${text})`;

const distinct = (texts) => [...new Set(texts)];

function listed(texts) {
  const more = texts.length - NAMED;
  return texts.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function entry({ port, stage, drops, text }) {
  return element("li", { class: drops && "bad" }, element("b", {}, `${port}: ${stage}`), ` ${text}`);
}
