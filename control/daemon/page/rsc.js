// Coalescing toward one port: its setting, a button with the token, and a strip that compares before and after the change.

import { element, redraw, say, table } from "./dom.js";
import { mean } from "./history.js";
import { bits, perSecond, quoted } from "./text.js";

/** Number of samples before a change, and after it. */
const STRIP = 10;

/** Name, measure of a sample, and format. */
const MEASURES = [
  ["Out of the switch", (sample) => sample.egress, bits],
  ["Frames out", (sample) => sample.frames, perSecond],
  ["Segments merged", (sample) => sample.merged, perSecond],
  ["Trains", (sample) => sample.trains, perSecond],
  ["Drops", (sample) => sample.drops, perSecond],
];

export class Coalescing {
  constructor(name, token) {
    this.name = name;
    this.token = token;
    this.before = null;
    this.setting = element("p");
    this.button = element("button", { id: "toggle" });
    this.input = element("input", { type: "password", id: "token", autocomplete: "off", value: token.text });
    this.input.addEventListener("input", () => {
      token.text = this.input.value.trim();
    });
    this.answer = element("p", { role: "status" });
    const hint = element("p", { class: "ago" }, "The token is the first line of the file that `token-file` in [web] of the configuration names.");
    this.controls = element("form", { class: "tools" }, element("label", {}, "Token ", this.input), this.button, hint);
    this.controls.addEventListener("submit", (event) => {
      event.preventDefault();
      this.toggle();
    });
    this.readOnly = element("p", {}, "The page is read-only: [web] has no token-file.");
    this.command = element("code");
    const command = element("p", {}, "The same by the command line: ", this.command);
    this.strip = element("div");
    const title = element("h3", {}, "Receive segment coalescing");
    this.body = element("div", {}, title, this.setting, this.controls, this.readOnly, command, this.answer, this.strip);
  }

  show(port, samples, mayChange) {
    this.policy = port.rsc;
    this.samples = samples;
    this.controls.hidden = !mayChange;
    this.readOnly.hidden = mayChange;
    const words = { ndis: "on, by NDIS rules", gro: "on, by GRO rules", off: "off" };
    say(this.setting, `Toward this port it is ${words[port.rsc]}.`);
    const { policy, isUndo } = this.next();
    const by = { ndis: "turn RSC on again, by NDIS rules", gro: "turn RSC on again, by GRO rules", off: "turn RSC off again" };
    say(this.button, isUndo ? `Undo: ${by[policy]}` : `Turn RSC ${policy}`);
    const name = quoted(port.name);
    // `on` has the rules that are usual for the port; an undo has those from before.
    say(this.command, isUndo ? `millrace port set ${name} rsc=${policy}` : `millrace rsc ${policy} ${name}`);
    if (this.before) this.showStrip();
  }

  /** What the button sends, and whether that takes back what was last changed here. */
  next() {
    const isUndo = this.changedFrom !== undefined && this.policy !== this.changedFrom;
    return { isUndo, policy: isUndo ? this.changedFrom : this.policy === "off" ? "on" : "off" };
  }

  showStrip() {
    const after = this.samples.filter(({ at }) => at > this.changedAt).slice(0, STRIP);
    const rows = MEASURES.map(([name, measure, format]) => [
      name,
      format(mean(this.before, measure)),
      after.length > 0 ? format(mean(after, measure)) : "waiting",
    ]);
    const heads = ["Mean", `${this.before.length} s before`, `${after.length} s after`];
    redraw(this.strip, [heads, rows], () => [table(`Before and after RSC was turned ${this.changedTo}`, heads, rows)]);
  }

  async toggle() {
    const { policy, isUndo } = this.next();
    const from = isUndo ? undefined : this.policy;
    const to = policy === "off" ? "off" : "on";
    const before = this.samples.slice(-STRIP);
    this.button.disabled = true;
    try {
      const answer = await fetch(`/ports/${encodeURIComponent(this.name)}/rsc`, {
        method: "PUT",
        headers: { "content-type": "application/json", authorization: `Bearer ${this.token.text}` },
        body: JSON.stringify({ policy }),
      });
      const told = await answer.json();
      if (answer.ok) {
        Object.assign(this, { before, changedAt: this.samples.at(-1)?.at ?? 0, changedTo: to, changedFrom: from });
        say(this.answer, `RSC was turned ${to}.`);
      } else {
        say(this.answer, told.detail ?? `The daemon answered ${answer.status}.`);
      }
    } catch (error) {
      say(this.answer, `The daemon does not answer: ${error.message}`);
    } finally {
      this.button.disabled = false;
      if (document.activeElement === document.body) this.button.focus();
    }
  }
}
