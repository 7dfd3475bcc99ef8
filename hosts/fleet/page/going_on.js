// What goes on in the fleet: the roll-out, moves, and the revisions so far.

import { byId, element, redraw, say } from "./dom.js";
import { duration } from "./text.js";

const PHASES = { running: "is being rolled out", done: "is in force", stopped: "has stopped", "rolled-back": "was rolled back" };
const STAGES = { prepare: "prepare", migrating: "migrating", "waiting-for-claim": "waiting for claim" };

const ago = (then, now) => `${duration(Math.max(0, now - then))} ago`;

export function showRollOut({ at, desired, driver }) {
  if (!desired) return say(byId("roll-out-state"), "No revision was applied yet.");
  const { revision, before, phase, hosts, author } = desired;
  const part = phase === "running" || phase === "stopped";
  const reach = part ? `, on ${hosts.length} hosts; the others are to have revision ${before}` : "";
  const lost = phase === "running" && !driver ? " Nobody drives it now: apply again to continue, or roll back." : "";
  say(byId("roll-out-state"), `Revision ${revision} ${PHASES[phase] ?? phase}${reach}; by ${author}, ${ago(desired.at, at)}.${lost}`);
  say(byId("roll-out-reason"), desired.reason);
}

export function showMoves({ moves }) {
  redraw(byId("move-list"), moves, () =>
    moves.length > 0 ? moves.map(move) : [element("li", {}, "No port moves.")],
  );
}

function move({ port, from, to, stage }) {
  const way = element("span", { class: "ago" }, ` ${from ?? "no host"} → ${to}, `);
  return element("li", {}, element("b", {}, port), way, STAGES[stage] ?? stage);
}

export function showHistory({ history, status: { at } }) {
  const shows = history.map((revision) => [revision, ago(revision.at, at)]);
  redraw(byId("event-list"), shows, () =>
    shows.length > 0 ? shows.map(entry) : [element("li", {}, "No revision was applied yet.")],
  );
}

function entry([{ number, author, message, back_to: to }, ago]) {
  const back = to === null || to === undefined ? "" : `model of ${to}`;
  const why = [back, message].filter(Boolean).join("; ");
  return element("li", {}, element("b", {}, `${number} `), why, element("div", { class: "ago" }, `${ago}, by ${author}`));
}
