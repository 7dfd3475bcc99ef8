// The chosen port in detail: state, traffic, coalescing, drops, queues, and its guest's features.

import { ActionForm } from "./action-form.js";
import { PORT_ACTIONS } from "./actions.js";
import { Chart } from "./chart.js";
import { byId, element, redraw, say, table } from "./dom.js";
import { joined, Past } from "./past.js";
import { Strip } from "./strip.js";
import { bits, bytes, count, counted, perSecond, percent, reason } from "./text.js";

export class PortView {
  /** `changes` carries out actions, `ranges` makes the buttons for the time shown, and `ask` asks the daemon. */
  constructor(changes, ranges, ask) {
    Object.assign(this, { changes, ranges, ask });
    this.name = null;
    this.detail = null;
  }

  /** Chooses a port. */
  choose(name, focus) {
    if (this.name !== name) {
      this.chart?.end();
      this.dropped?.end();
      this.name = name;
      this.detail = null;
      this.build();
    }
    if (focus) reveal();
  }

  build() {
    say(byId("port-title"), this.name);
    byId("port-hint").hidden = true;
    this.facts = element("dl", { class: "facts" });
    this.past = new Past(this.ask, this.name);
    this.chart = new Chart("Traffic", bits, 1000, this.ranges);
    this.dropped = new Chart("Drops", perSecond, 1, this.ranges);
    this.actions = PORT_ACTIONS.map((action) => new ActionForm(action, this.changes));
    this.strip = new Strip();
    this.rsc = element("p");
    this.drops = element("div");
    this.queues = element("div");
    this.guest = element("div");
    const parts = [this.ranges.buttons(), this.chart.figure, this.dropped.figure, this.facts, this.rsc, this.drops, this.strip.body, this.queues, this.guest];
    const title = element("h3", {}, "Actions");
    parts.push(element("div", { class: "actions" }, title, ...this.actions.map(({ form }) => form)));
    byId("port-body").replaceChildren(...parts);
    byId("port-body").hidden = false;
  }

  /** Shows the port of the newest state; `port` is undefined once it was removed. */
  show(port, samples, workers) {
    if (!port) {
      redraw(this.facts, "gone", () => fact("State", "this port no longer exists"));
      return;
    }
    this.showFacts(port);
    this.showCharts(samples);
    const words = { ndis: "on, by NDIS rules", gro: "on, by GRO rules", off: "off" };
    say(this.rsc, `Receive segment coalescing toward this port is ${words[port.rsc]}.`);
    this.strip.show(this.changes.last.get(port.name), samples);
    const detail = this.detail?.name === port.name ? this.detail : undefined;
    for (const action of this.actions) action.show({ name: port.name, state: port, detail, workers });
    const drops = Object.entries(port.drops ?? {}).sort(([, one], [, other]) => other - one);
    const rows = drops.map(([name, dropped]) => [reason(name), count(dropped)]);
    redraw(this.drops, rows, () =>
      rows.length > 0 ? [table("Drops since the port was opened", ["Reason", "Frames"], rows)] : [element("p", {}, "No frame of this port was dropped.")],
    );
    if (detail) this.showDetail(detail);
  }

  showCharts(seen) {
    const span = this.ranges.seconds;
    this.past.refresh(span);
    const samples = span > 600 ? this.past.of(span) : joined(this.past.of(span), seen);
    const times = samples.map(({ at }) => at);
    const line = (name, measure) => [name, samples.map((sample) => measure(sample) ?? null)];
    const into = line("into the switch", ({ ingress }) => ingress);
    this.chart.show(times, [into, line("out of the switch", ({ egress }) => egress)], span);
    this.dropped.show(times, [line("all reasons", ({ dropped }) => dropped)], span);
  }

  showFacts(port) {
    const { mtu, mac, held_mac: held, offloads = [], degraded = [] } = this.detail ?? {};
    const facts = [
      ["State", port.reason ? `${port.state}: ${port.reason}` : port.state],
      ["Device", port.device],
      ["Role", port.role === "uplink" ? "uplink (a network)" : "vNIC (a guest)"],
      ["VLAN", port.vlan],
      ["MTU", mtu ? String(mtu) : "unknown"],
      ["Address", mac ?? (held ? `${held} (held)` : "none")],
      ["Offloads", offloads.join(" ") || "none"],
      ...degraded.map((text) => ["Degraded", text]),
    ];
    redraw(this.facts, facts, () => facts.flatMap(([name, value]) => fact(name, value)));
  }

  showDetail({ queues, guest }) {
    const cores = ({ worker, cpu }) => `${worker} (${cpu === null ? "any core" : `core ${cpu}`})`;
    const rows = queues.map((queue) => [
      String(queue.queue),
      cores(queue),
      percent(queue.load_percent),
      String(queue.entries),
    ]);
    const heads = ["Queue", "Worker", "Load", "RSS entries"];
    redraw(this.queues, rows, () => (rows.length > 0 ? [table("Queues into the switch", heads, rows)] : []));
    redraw(this.guest, guest, () => (guest ? guestParts(guest) : []));
  }
}

/** Moves to what a person has opened: on a phone it is below the list. */
function reveal() {
  const title = byId("port-title");
  title.focus({ preventScroll: true });
  const { top, bottom } = title.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight * 0.8) title.scrollIntoView({ block: "start" });
}

const fact = (name, value) => [element("dt", {}, name), element("dd", {}, value)];

function guestParts(guest) {
  const taken = new Set(guest.taken);
  const feature = (name) => element("li", { class: taken.has(name) ? "taken" : "left" }, `${taken.has(name) ? "✓" : "–"} ${name}`);
  const memory = guest.memory_bytes > 0 ? `${bytes(guest.memory_bytes)} of memory mapped` : "no memory mapped";
  const state = guest.connected ? "connected" : "not connected";
  const words = `${state}, ${counted(guest.connections, "connection")} so far, ${counted(guest.queues, "queue pair")}, ${memory}`;
  return [
    element("h3", {}, "Guest"),
    element("p", {}, words),
    element("ul", {}, ...guest.follows.map((text) => element("li", {}, text))),
    element(
      "details",
      {},
      element("summary", {}, `Features: ${guest.taken.length} accepted (✓) of ${guest.offered.length} offered`),
      element("ul", { class: "features" }, ...guest.offered.map(feature)),
    ),
  ];
}
