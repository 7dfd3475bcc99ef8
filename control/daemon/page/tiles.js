// Four numbers that tell how the switch is, each with the last hour behind it.

import { byId, element, redraw, say } from "./dom.js";
import { graver } from "./findings.js";
import { scaledSpark } from "./spark.js";
import { bits, count, counted, perSecond, reason } from "./text.js";

/** Fewer minutes than this are no line: a daemon that has just started shows its seconds. */
const FEW = 5;
/** Number of ports that are named. */
const NAMED = 2;

export class Tiles {
  constructor() {
    this.tiles = new Map();
    for (const [key, title] of [["traffic", "Traffic"], ["drops", "Drops"], ["busy", "Busy cores"], ["problems", "Findings"]]) {
      const tile = { value: element("b"), more: element("p"), past: element("div", { class: "past" }) };
      byId("tiles").append(element("article", { class: key }, element("h2", {}, title), tile.value, tile.more, tile.past));
      this.tiles.set(key, tile);
    }
  }

  /** Shows the newest state; `minutes` are those of the last hour, `seconds` those of the last minutes. */
  show(state, minutes, seconds) {
    const known = minutes.filter(({ ingress }) => ingress !== null).length;
    const [past, words] = known >= FEW ? [minutes, "last hour"] : [seconds, "last 10 min"];
    const last = seconds.at(-1) ?? {};
    this.showTraffic(last, past);
    this.showDrops(state, past, words);
    this.showBusy(state.workers.length, last, past, words);
    this.showFindings(state.findings, past);
  }

  showTraffic({ ingress = 0, egress = 0 }, past) {
    const sums = past.map((sample) => (sample.ingress === null ? null : sample.ingress + sample.egress));
    const most = Math.max(0, ...past.map((sample) => sample.ingress ?? 0));
    this.put("traffic", `${bits(ingress ?? 0)} in`, `${bits(egress ?? 0)} out, peak ${bits(most)}`, sums, 1000);
  }

  showDrops({ ports }, past, words) {
    const now = dropping(ports);
    const all = now.reduce((sum, port) => sum + port.rates.drops_per_s, 0);
    const values = past.map(({ dropped }) => dropped ?? null);
    const step = past.length > 1 ? past[1].at - past[0].at : 1;
    const sum = Math.round(values.reduce((sum, value) => sum + (value ?? 0), 0) * step);
    const named = now.slice(0, NAMED).map(({ name, rates, drops }) => `${name} ${perSecond(rates.drops_per_s)}${most(drops)}`);
    const more = now.length > NAMED ? ` and ${counted(now.length - NAMED, "other port")}` : "";
    const told = now.length > 0 ? named.join(", ") + more : `${count(sum)} in the ${words}`;
    this.put("drops", perSecond(all), told, values, 1, all > 0);
  }

  showBusy(workers, { share = 0 }, past, words) {
    const values = past.map((sample) => (sample.share === null ? null : sample.share / 100));
    const busy = ((share ?? 0) / 100) * workers;
    const most = Math.max(0, ...values.map((value) => value ?? 0)) * workers;
    this.put("busy", `${busy.toFixed(2)} of ${workers}`, `peak ${most.toFixed(2)} in the ${words}`, values, 1);
  }

  showFindings(findings, past) {
    const first = findings.find(({ severity }) => severity !== "info");
    const values = past.map(({ findings }) => findings ?? null);
    const told = first ? first.error : findings.length > 0 ? counted(findings.length, "note") : "nothing to correct";
    this.put("problems", graver(findings) || "none", told, values, 3, Boolean(first));
  }

  put(key, value, more, values, least, isBad = false) {
    const tile = this.tiles.get(key);
    say(tile.value, value);
    say(tile.more, more);
    tile.more.title = more;
    tile.value.classList.toggle("bad", isBad);
    redraw(tile.past, values, () => [scaledSpark(values, least, key)]);
  }
}

/** Ports that drop frames now, most first. */
export const dropping = (ports) =>
  ports.filter(({ rates }) => rates.drops_per_s > 0).sort((one, other) => other.rates.drops_per_s - one.rates.drops_per_s);

/** The most frequent reason of a port's drops. */
function most(drops) {
  const [first] = Object.entries(drops ?? {}).sort(([, one], [, other]) => other - one);
  return first ? ` (${reason(first[0])})` : "";
}
