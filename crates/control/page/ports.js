// The list of ports. Only the rows in sight exist, however many ports there are.
//
// It is a grid with one tab stop: the arrow keys move the active row, Enter or a click chooses its port.

import { byId, element, say } from "./dom.js";
import { count, counted, short } from "./text.js";

const SIGNS = { up: "●", down: "○", broken: "✕" };
/** Rows above and below those in sight. */
const SPARE = 4;

const COMPARE = {
  name: (one, other) => one.name.localeCompare(other.name, "en", { numeric: true }),
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
    this.choose = choose;
    this.all = [];
    this.shown = [];
    this.rows = [];
    this.active = null;
    this.chosen = null;
    this.grid = byId("grid");
    this.body = byId("rows");
    for (const id of ["find", "only", "sort"]) byId(id).addEventListener("input", () => this.arrange());
    this.grid.addEventListener("scroll", () => this.draw(), { passive: true });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("focus", () => {
      this.active ??= this.chosen ?? this.shown[0]?.name ?? null;
      this.draw();
    });
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.grid);
  }

  show(ports) {
    this.all = ports;
    this.arrange();
  }

  /** Marks the port that is shown in detail. */
  mark(name) {
    this.chosen = name;
    this.active = name;
    this.draw();
  }

  arrange() {
    const words = byId("find").value.trim().toLowerCase();
    const only = ONLY[byId("only").value];
    const isFound = ({ name, device }) => `${name} ${device}`.toLowerCase().includes(words);
    this.shown = this.all.filter((port) => only(port) && isFound(port)).sort(COMPARE[byId("sort").value]);
    const whole = counted(this.all.length, "port");
    say(byId("shown"), this.shown.length === this.all.length ? whole : `${count(this.shown.length)} of ${whole}`);
    byId("no-ports").hidden = this.shown.length > 0;
    say(byId("no-ports"), this.all.length > 0 ? "No port is like that." : "There are no ports yet: millrace port add --help");
    this.grid.setAttribute("aria-rowcount", String(this.shown.length + 1));
    this.draw();
  }

  /** The height of a row, as the style sheet has it. */
  get height() {
    this.measured ??= parseFloat(getComputedStyle(this.grid).getPropertyValue("--row"));
    return this.measured;
  }

  draw() {
    const { height } = this;
    this.body.style.height = `${this.shown.length * height}px`;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / height) - SPARE);
    const wanted = Math.ceil(this.grid.clientHeight / height) + 2 * SPARE;
    const ports = this.shown.slice(first, first + wanted);
    while (this.rows.length < ports.length) this.rows.push(this.body.appendChild(row()));
    while (this.rows.length > ports.length) this.rows.pop().remove();
    ports.forEach((port, place) => this.fill(this.rows[place], port, first + place));
    const active = ports.findIndex(({ name }) => name === this.active);
    if (active >= 0) this.grid.setAttribute("aria-activedescendant", this.rows[active].id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  fill(row, port, place) {
    row.id = `row-${place}`;
    row.port = port.name;
    row.setAttribute("aria-rowindex", String(place + 2));
    row.setAttribute("aria-selected", String(port.name === this.chosen));
    row.classList.toggle("active", port.name === this.active);
    row.style.transform = `translateY(${place * this.height}px)`;
    const [name, state, ingress, egress, drops, device] = row.children;
    say(name, port.name);
    say(state, `${SIGNS[port.state]} ${port.state}`);
    state.className = `state ${port.state}`;
    state.title = port.reason ?? "";
    say(ingress, short(port.rates.ingress_bits_per_s));
    say(egress, short(port.rates.egress_bits_per_s));
    say(drops, short(port.rates.drops_per_s));
    drops.classList.toggle("bad", port.rates.drops_per_s > 0);
    say(device, port.device);
    device.title = port.device;
    name.title = port.name;
  }

  click(event) {
    const row = event.target.closest("[role=row]");
    if (row) this.choose(row.port);
  }

  key(event) {
    if (event.key === "Enter" || event.key === " ") {
      if (this.active) this.choose(this.active);
      event.preventDefault();
      return;
    }
    const last = this.shown.length - 1;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -last, End: last };
    const step = steps[event.key];
    if (step === undefined || last < 0) return;
    event.preventDefault();
    const now = this.shown.findIndex(({ name }) => name === this.active);
    const next = now < 0 ? 0 : Math.min(last, Math.max(0, now + step));
    this.active = this.shown[next].name;
    this.reveal(next);
    this.draw();
  }

  /** Scrolls so that a row is in sight, below the heads. */
  reveal(place) {
    const { height, grid } = this;
    const room = grid.clientHeight - grid.firstElementChild.offsetHeight;
    const top = place * height;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + height > grid.scrollTop + room) grid.scrollTop = top + height - room;
  }
}

function row() {
  const classes = ["name", "state", "number", "number", "number", "wide"];
  return element("div", { role: "row" }, ...classes.map((name) => element("span", { role: "gridcell", class: name })));
}
