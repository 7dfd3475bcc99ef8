// One host: what it is to have, what it has, and what it reports.

import { byId, element, redraw, say } from "./dom.js";
import { condition, labels } from "./hosts.js";
import { duration } from "./text.js";

export class HostView {
  constructor() {
    this.name = null;
  }

  choose(name, focus) {
    this.name = name;
    say(byId("host-title"), name);
    byId("host-hint").hidden = true;
    if (focus) byId("host-title").focus();
  }

  show({ at, hosts }) {
    if (!this.name) return;
    const host = hosts.find(({ name }) => name === this.name);
    const shows = host ? [facts(host, at), host.status?.findings ?? []] : null;
    byId("host-body").hidden = false;
    redraw(byId("host-body"), shows, () =>
      host ? [list(facts(host, at)), ...findings(host)] : [element("p", {}, "There is no such host.")],
    );
  }
}

/** Pairs of a name and a text. */
function facts(host, at) {
  const { status } = host;
  const lag = host.lag_s === null ? [] : [["Lag", `${duration(host.lag_s)} since the revision was written`]];
  const reported = status
    ? [
        ["Has", `revision ${status.revision}`],
        ...lag,
        ["Prepared", status.prepared.join(", ") || "no port"],
        ["Switch", status.version || "it does not answer"],
        ["Agent", status.agent],
        ["Reported", `${duration(Math.max(0, at - status.at))} ago, when something changed last`],
      ]
    : [["Has", "unknown: its agent is away, and its switch carries on"]];
  return [
    ["State", condition(host)],
    ["Labels", labels(host) || "none"],
    ["Is to have", `revision ${host.wanted}`],
    ...reported,
  ];
}

function list(pairs) {
  return element(
    "dl",
    { class: "facts" },
    ...pairs.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]),
  );
}

function findings({ status }) {
  const entry = ({ severity, error, seen, wanted, remedy }) =>
    element(
      "li",
      {},
      element("b", { class: severity }, severity),
      ` ${error}`,
      ...[seen && `seen: ${seen}`, wanted && `wanted: ${wanted}`, remedy]
        .filter(Boolean)
        .map((text) => element("div", { class: "ago" }, text)),
    );
  const told = status?.findings ?? [];
  if (told.length === 0) return [];
  return [element("h3", {}, "Findings"), element("ul", { class: "told" }, ...told.map(entry))];
}
