// The switch as a drawing: uplinks on the left, a lane for each VLAN, and on each lane its vNICs. A line is as thick as its
// traffic, and red while the port drops frames.
//
// It is an image to assistive technology: the list has the same ports.

import { byId, redraw, say } from "./dom.js";
import { drawn } from "./spark.js";
import { dropping } from "./tiles.js";
import { bits, byName, counted, perSecond } from "./text.js";

/** Lanes and uplinks that are drawn; the others are folded into one. */
const LANES = 7;
const UPLINKS = 6;
/** Rows of vNICs that a lane may have: many if there are few lanes. */
const ROWS = 12;
/** Width of the uplinks and of the lanes' names, in pixels. */
const UPLINK = 110;
const GAP = 46;
const NAME = 82;
/** Width and height of a vNIC, with the space around it; above this many they are small. */
const LARGE = { width: 104, height: 34, most: 24 };
const SMALL = { width: 74, height: 26 };

export class Topology {
  /** `choose` is called with the name of a port. */
  constructor(choose) {
    this.body = byId("topology-body");
    this.ports = null;
    this.chosen = null;
    this.body.addEventListener("click", (event) => {
      const port = event.target.closest("[data-port]")?.dataset.port;
      if (port !== undefined) choose(port);
    });
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  show({ ports }, chosen) {
    this.ports = ports;
    this.chosen = chosen;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.body.clientWidth);
    if (!this.ports || width === 0) return;
    const shows = this.ports.map(({ name, role, state, vlan, rates }) => [name, role, state, vlan, thickness(both(rates)), rates.drops_per_s]);
    redraw(this.body, [width, this.chosen, shows], () => [picture(this.ports, width, this.chosen)]);
    say(byId("topology-words"), words(this.ports));
  }
}

const both = ({ ingress_bits_per_s: ingress, egress_bits_per_s: egress }) => ingress + egress;
const total = (ports) => ports.reduce((sum, { rates }) => sum + both(rates), 0);
const drops = (ports) => ports.reduce((sum, { rates }) => sum + rates.drops_per_s, 0);

/** A line of 1 pixel is idle; of 9 pixels, 10 Gbit/s and more. */
const thickness = (bits) => (bits < 1000 ? 1 : Math.round(2 * Math.min(9, Math.log10(bits) - 1)) / 2);

/** Ports that drop come first, then those with the most traffic: they are seen when others are folded. */
const weightiest = (one, other) =>
  other.rates.drops_per_s - one.rates.drops_per_s || both(other.rates) - both(one.rates) || byName(one.name, other.name);

function words(ports) {
  const uplinks = ports.filter(({ role }) => role === "uplink").length;
  const bad = dropping(ports).length;
  const lanes = new Set(ports.filter(({ role }) => role !== "uplink").map(({ vlan }) => vlan)).size;
  const told = `${counted(uplinks, "uplink")}, ${counted(lanes, "VLAN lane")}, ${counted(ports.length - uplinks, "vNIC")}`;
  return bad > 0 ? `${told}; ${counted(bad, "port")} dropping frames` : told;
}

/** Lanes by name, with their ports; those that are too many are one lane. */
function lanesOf(ports) {
  const lanes = new Map();
  for (const port of ports) {
    const name = laneName(port.vlan);
    if (!lanes.has(name)) lanes.set(name, []);
    lanes.get(name).push(port);
  }
  const all = [...lanes].map(([name, ports]) => ({ name, ports }));
  if (all.length > LANES) {
    all.sort((one, other) => drops(other.ports) - drops(one.ports) || total(other.ports) - total(one.ports));
    const rest = all.splice(LANES - 1);
    all.sort((one, other) => byName(one.name, other.name));
    return [...all, { name: `${rest.length} more`, ports: rest.flatMap(({ ports }) => ports) }];
  }
  return all.sort((one, other) => byName(one.name, other.name));
}

function laneName(vlan) {
  const access = /^access (\d+)$/.exec(vlan);
  return access ? `VLAN ${access[1]}` : vlan;
}

function picture(ports, width, chosen) {
  const uplinks = ports.filter(({ role }) => role === "uplink").sort(weightiest);
  const lanes = lanesOf(ports.filter(({ role }) => role !== "uplink"));
  const size = ports.length > LARGE.most || width < 500 ? SMALL : LARGE;
  const left = width < 500 ? { uplink: 74, name: 66, gap: 24 } : { uplink: UPLINK, name: NAME, gap: GAP };
  const from = left.uplink + left.gap + left.name;
  const perRow = Math.max(1, Math.floor((width - from) / size.width));
  const rows = Math.max(1, Math.floor(ROWS / Math.max(1, lanes.length)));
  const parts = [];
  let top = 6;
  const places = lanes.map((lane) => {
    const drawnRows = Math.max(1, Math.min(rows, Math.ceil(lane.ports.length / perRow)));
    const place = { lane, top, rows: drawnRows, middle: top + 9 };
    top += drawnRows * size.height + 12;
    return place;
  });
  const shownUplinks = uplinks.length > UPLINKS ? uplinks.slice(0, UPLINKS - 1) : uplinks;
  const height = Math.max(top, shownUplinks.length * 40 + (uplinks.length > UPLINKS ? 40 : 0) + 8, 40);
  const trunk = left.uplink + left.gap / 2;
  const ends = [...places.map(({ middle }) => middle)];
  shownUplinks.forEach((port, place) => {
    const y = height / 2 + (place - (shownUplinks.length - 1) / 2) * 40;
    ends.push(y);
    parts.push(line(left.uplink, y, trunk, y, [port]), box(port, { x: 1, y: y - 14, width: left.uplink - 2, height: 28 }, chosen));
  });
  if (uplinks.length > shownUplinks.length) {
    const more = `${uplinks.length - shownUplinks.length} more`;
    parts.push(label(more, left.uplink / 2, height - 6, "middle"));
  }
  if (ends.length > 1) parts.unshift(line(trunk, Math.min(...ends), trunk, Math.max(...ends), uplinks));
  for (const place of places) parts.push(...laneParts(place, { trunk, from, left, width, size, perRow, chosen }));
  const attributes = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "topology-words" };
  return drawn("svg", attributes, ...parts);
}

/** A lane: its line and name, and its vNICs below, each on a stub. */
function laneParts({ lane, top, rows, middle }, { trunk, from, left, width, size, perRow, chosen }) {
  const sorted = [...lane.ports].sort(weightiest);
  const room = rows * perRow;
  const shown = sorted.length > room ? sorted.slice(0, room - 1) : [...sorted].sort((one, other) => byName(one.name, other.name));
  const lines = [line(trunk, middle, from, middle, lane.ports), line(from, middle, width - 4, middle, lane.ports, "lane")];
  const name = clipped(lane.name, left.name - 6, 7);
  const parts = [...lines, label(name, trunk + left.gap / 2 + 2, middle + 16, "start")];
  const at = (place) => ({
    x: from + (place % perRow) * size.width,
    y: top + 14 + Math.floor(place / perRow) * size.height,
    width: size.width - 8,
    height: size.height - 8,
  });
  shown.forEach((port, place) => {
    const own = at(place);
    const x = own.x + 8;
    parts.unshift(line(x, own.y - (own.y > top + 14 ? 8 : 5), x, own.y, [port]));
    parts.push(box(port, own, chosen));
  });
  const rest = sorted.length - shown.length;
  if (rest > 0) {
    const own = at(shown.length);
    parts.push(label(`and ${rest} more`, own.x + 2, own.y + own.height / 2 + 4, "start"));
  }
  return parts;
}

function line(x1, y1, x2, y2, ports, kind = "") {
  const bad = drops(ports) > 0 ? "drops" : total(ports) >= 1000 ? "flows" : "idle";
  return drawn("line", { x1, y1, x2, y2, class: `${bad} ${kind}`, "stroke-width": thickness(total(ports)) });
}

/** A port as a box with its name; the whole box chooses it. */
function box(port, { x, y, width, height }, chosen) {
  const { name, state, rates } = port;
  const dropped = rates.drops_per_s > 0 ? `, ${perSecond(rates.drops_per_s)} dropped` : "";
  const title = `${name}: ${state}, ${port.vlan}, in ${bits(rates.ingress_bits_per_s)}, out ${bits(rates.egress_bits_per_s)}${dropped}`;
  const classes = ["port", state === "up" ? "is-up" : "is-not-up", dropped && "drops", name === chosen && "chosen"];
  return drawn(
    "g",
    { class: classes.filter(Boolean).join(" "), "data-port": name },
    drawn("title", {}, title),
    drawn("rect", { x, y, width, height, rx: 4 }),
    label(clipped(name, width - 10, 6.6), x + 6, y + height / 2 + 4, "start"),
  );
}

const label = (text, x, y, anchor) => drawn("text", { x, y, "text-anchor": anchor }, text);

/** As much of a text as has room, by the mean width of a letter. */
function clipped(text, width, letter) {
  const most = Math.max(2, Math.floor(width / letter));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
