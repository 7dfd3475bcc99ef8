// The list of ports: searched, filtered and sorted.

import { byId, redraw, say } from "./dom.js";
import { List } from "./list.js";
import { spark } from "./spark.js";
import { byName, count, counted, short } from "./text.js";

const SIGNS = { up: "●", down: "○", broken: "✕" };

/** How each column is sorted when its head is pressed: numbers from the highest. A second press reverses it. */
const COMPARE = {
  name: (one, other) => byName(one.name, other.name),
  state: (one, other) => RANK[one.state] - RANK[other.state],
  ingress: (one, other) => other.rates.ingress_bits_per_s - one.rates.ingress_bits_per_s,
  egress: (one, other) => other.rates.egress_bits_per_s - one.rates.egress_bits_per_s,
  drops: (one, other) => other.rates.drops_per_s - one.rates.drops_per_s || all(other) - all(one),
  device: (one, other) => byName(one.device, other.device),
};
const RANK = { broken: 0, down: 1, up: 2 };
const all = ({ drops }) => Object.values(drops ?? {}).reduce((sum, dropped) => sum + dropped, 0);
const traffic = ({ rates }) => rates.ingress_bits_per_s + rates.egress_bits_per_s;

/** The name of the port with the most traffic; without any, of the first. */
export function busiest(ports) {
  const sorted = [...ports].sort((one, other) => traffic(other) - traffic(one) || COMPARE.name(one, other));
  return sorted[0]?.name;
}

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
    this.sparks = {};
    this.sorted = { by: "name", isReversed: false };
    const fill = (cells, port) => fillRow(cells, port, this.sparks[port.name]);
    this.list = new List({ classes: ["name", "state", "past", "number", "number", "number", "wide"], fill, choose });
    for (const id of ["find", "only"]) byId(id).addEventListener("input", () => this.arrange());
    this.heads = [...document.querySelectorAll("#grid [data-sort]")];
    for (const head of this.heads) head.addEventListener("click", () => this.sortBy(head.dataset.sort));
    this.tellSorting();
  }

  sortBy(by) {
    this.sorted = { by, isReversed: this.sorted.by === by && !this.sorted.isReversed };
    this.tellSorting();
    this.list.grid.scrollTop = 0;
    this.arrange();
  }

  /** Marks the head by which the list is sorted; numbers begin with the highest. */
  tellSorting() {
    for (const head of this.heads) {
      const isNumber = head.parentElement.classList.contains("number");
      const order = isNumber === this.sorted.isReversed ? "ascending" : "descending";
      head.parentElement.setAttribute("aria-sort", head.dataset.sort === this.sorted.by ? order : "none");
    }
  }

  /** Shows the last hour of each port, as the daemon writes it: a digit to base 36 for each two minutes. */
  past(sparks) {
    this.sparks = sparks;
    this.arrange();
  }

  show(ports) {
    this.all = ports;
    this.arrange();
  }

  order() {
    const { by, isReversed } = this.sorted;
    return (one, other) => (isReversed ? -1 : 1) * COMPARE[by](one, other) || COMPARE.name(one, other);
  }

  /** Marks the port that is shown in detail. */
  mark(name) {
    this.list.mark(name);
  }

  arrange() {
    const words = byId("find").value.trim().toLowerCase();
    const only = ONLY[byId("only").value];
    const isFound = ({ name, device }) => `${name} ${device}`.toLowerCase().includes(words);
    const shown = this.all.filter((port) => only(port) && isFound(port)).sort(this.order());
    const whole = counted(this.all.length, "port");
    say(byId("shown"), shown.length === this.all.length ? whole : `${count(shown.length)} of ${whole}`);
    byId("no-ports").hidden = shown.length > 0;
    say(byId("no-ports"), this.all.length > 0 ? "No port matches." : "There are no ports yet: millrace port add --help");
    this.list.show(shown);
  }
}

function fillRow([name, state, past, ingress, egress, drops, device], port, sparks = "") {
  say(name, port.name);
  name.title = port.name;
  say(state, `${SIGNS[port.state]} ${port.state}`);
  state.className = `state ${port.state}`;
  state.title = port.reason ?? "";
  redraw(past, sparks, () => (sparks ? [spark([...sparks].map(digit), "row")] : []));
  say(ingress, short(port.rates.ingress_bits_per_s));
  say(egress, short(port.rates.egress_bits_per_s));
  say(drops, short(port.rates.drops_per_s));
  drops.classList.toggle("bad", port.rates.drops_per_s > 0);
  say(device, port.device);
  device.title = port.device;
}

/** A share of the port's highest traffic, from 0 to 1; null where the daemon knows nothing. */
function digit(character) {
  const value = parseInt(character, 36);
  return Number.isNaN(value) ? null : value / 35;
}
