// The list of ports: searched, filtered and sorted.

import { byId, say } from "./dom.js";
import { List } from "./list.js";
import { byName, count, counted, short } from "./text.js";

const SIGNS = { up: "●", down: "○", broken: "✕" };

const COMPARE = {
  name: (one, other) => byName(one.name, other.name),
  rate: (one, other) => traffic(other) - traffic(one) || COMPARE.name(one, other),
  drops: (one, other) =>
    other.rates.drops_per_s - one.rates.drops_per_s || all(other) - all(one) || COMPARE.name(one, other),
};
const traffic = ({ rates }) => rates.ingress_bits_per_s + rates.egress_bits_per_s;
const all = ({ drops }) => Object.values(drops ?? {}).reduce((sum, dropped) => sum + dropped, 0);

const ONLY = {
  "": () => true,
  up: ({ state }) => state === "up",
  not: ({ state }) => state !== "up",
  drops: ({ rates }) => rates.drops_per_s > 0,
};

export class Ports {
  /** `choose` is called with the name of a port. */
  constructor(choose) {
    this.all = [];
    this.list = new List({ classes: ["name", "state", "number", "number", "number", "wide"], fill, choose });
    for (const id of ["find", "only", "sort"]) byId(id).addEventListener("input", () => this.arrange());
  }

  show(ports) {
    this.all = ports;
    this.arrange();
  }

  /** Marks the port that is shown in detail. */
  mark(name) {
    this.list.mark(name);
  }

  arrange() {
    const words = byId("find").value.trim().toLowerCase();
    const only = ONLY[byId("only").value];
    const isFound = ({ name, device }) => `${name} ${device}`.toLowerCase().includes(words);
    const shown = this.all.filter((port) => only(port) && isFound(port)).sort(COMPARE[byId("sort").value]);
    const whole = counted(this.all.length, "port");
    say(byId("shown"), shown.length === this.all.length ? whole : `${count(shown.length)} of ${whole}`);
    byId("no-ports").hidden = shown.length > 0;
    say(byId("no-ports"), this.all.length > 0 ? "No port matches." : "There are no ports yet: millrace port add --help");
    this.list.show(shown);
  }
}

function fill([name, state, ingress, egress, drops, device], port) {
  say(name, port.name);
  name.title = port.name;
  say(state, `${SIGNS[port.state]} ${port.state}`);
  state.className = `state ${port.state}`;
  state.title = port.reason ?? "";
  say(ingress, short(port.rates.ingress_bits_per_s));
  say(egress, short(port.rates.egress_bits_per_s));
  say(drops, short(port.rates.drops_per_s));
  drops.classList.toggle("bad", port.rates.drops_per_s > 0);
  say(device, port.device);
  device.title = port.device;
}
