// The list of hosts: searched and filtered.

import { byId, say } from "./dom.js";
import { graver } from "./findings.js";
import { List } from "./list.js";
import { byName, count, counted, duration } from "./text.js";

const SIGNS = { well: "●", away: "○", late: "○", error: "✕" };
const CLASSES = { well: "up", away: "down", late: "down", error: "bad" };

const ofSeverity = ({ status }, severity) => status.findings.filter((finding) => finding.severity === severity).length;

/** `away`, `error`, `late` or `well`. */
export function condition(host) {
  if (!host.status) return "away";
  if (ofSeverity(host, "error") > 0) return "error";
  return host.status.revision === host.wanted ? "well" : "late";
}

/** Errors and warnings. */
const grave = (host) => (host.status ? ofSeverity(host, "error") + ofSeverity(host, "warning") : 0);

const ONLY = {
  "": () => true,
  not: (host) => condition(host) !== "well",
  findings: (host) => grave(host) > 0,
};

export const labels = (host) =>
  Object.entries(host.labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");

export class Hosts {
  /** `choose` is called with the name of a host. */
  constructor(choose) {
    this.all = [];
    this.list = new List({ classes: ["name", "state", "number", "number", "number", "wide"], fill, choose });
    for (const id of ["find", "only"]) byId(id).addEventListener("input", () => this.arrange());
  }

  show(hosts) {
    this.all = hosts;
    this.arrange();
  }

  /** Marks the host that is shown in detail. */
  mark(name) {
    this.list.mark(name);
  }

  arrange() {
    const words = byId("find").value.trim().toLowerCase();
    const only = ONLY[byId("only").value];
    const isFound = (host) => `${host.name} ${labels(host)}`.toLowerCase().includes(words);
    const shown = this.all.filter((host) => only(host) && isFound(host)).sort((one, other) => byName(one.name, other.name));
    const whole = counted(this.all.length, "host");
    say(byId("shown"), shown.length === this.all.length ? whole : `${count(shown.length)} of ${whole}`);
    byId("no-hosts").hidden = shown.length > 0;
    const none = "No agent has registered a host yet: millrace fleet agent --help";
    say(byId("no-hosts"), this.all.length > 0 ? "No host matches." : none);
    this.list.show(shown);
  }
}

function fill([name, state, revision, lag, findings, version], host) {
  const now = condition(host);
  say(name, host.name);
  name.title = labels(host);
  say(state, `${SIGNS[now]} ${now}`);
  state.className = `state ${CLASSES[now]}`;
  say(revision, host.status ? String(host.status.revision) : "-");
  say(lag, host.lag_s === null ? "-" : duration(host.lag_s));
  say(findings, host.status ? String(grave(host)) : "-");
  findings.title = host.status ? graver(host.status.findings) : "";
  findings.classList.toggle("bad", grave(host) > 0);
  say(version, host.status?.version ?? "");
  version.title = host.status?.version ?? "";
}
