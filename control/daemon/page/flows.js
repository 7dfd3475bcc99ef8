// Who talks to whom: the largest flows, or those of which frames were dropped. A drop opens its trace.

import { byId, element, redraw, say } from "./dom.js";
import { bits, bytes, count, counted, duration, reason } from "./text.js";

/** Flows that are shown. */
const SHOWN = 50;

export class Flows {
  /** `ask` asks the daemon, and `trace` is called with a port and a frame that enters by it. */
  constructor(ask, trace) {
    Object.assign(this, { ask, trace });
    this.isAsking = false;
    for (const id of ["flows-ip", "flows-drops"]) byId(id).addEventListener("input", () => this.refresh());
  }

  /** Asks for the flows, unless an answer is still awaited. */
  async refresh() {
    if (this.isAsking) return;
    this.isAsking = true;
    const wanted = this.wanted();
    try {
      this.show(await this.ask(`/flows?${wanted}`));
    } catch {
      say(byId("flows-words"), byId("flows-ip").value ? "No such address, or the daemon does not answer." : "The daemon does not answer.");
    } finally {
      this.isAsking = false;
    }
    // Somebody has typed meanwhile.
    if (this.wanted() !== wanted) this.refresh();
  }

  wanted() {
    const ip = byId("flows-ip").value.trim();
    const parts = [`limit=${SHOWN}`, byId("flows-drops").checked && "drops=true", ip && `ip=${encodeURIComponent(ip)}`];
    return parts.filter(Boolean).join("&");
  }

  show({ enabled, matching, then_one_in: oneIn, flows }) {
    const more = matching > flows.length ? `the ${count(flows.length)} largest of ${counted(matching, "flow")}` : counted(matching, "flow");
    const how = flows.some(isEstimate) ? `; ~ is estimated from one frame in ${oneIn}` : "";
    say(byId("flows-words"), enabled ? `${more} of the last five minutes${how}` : "The switch does not look at flows: write flows = true into [switch].");
    const heads = ["From", "To", "Protocol", "Source", "Destination", "Rate", "Drops", "Bytes", "Segments", "Resent", "Seen", "Carried by"];
    const head = heads.map((text) => element("th", { scope: "col", class: NUMBERS.has(text) && "number" }, text));
    redraw(byId("flows-head"), heads, () => [element("tr", {}, ...head)]);
    redraw(byId("flows-rows"), flows, () => flows.map((flow) => this.row(flow)));
  }

  row(flow) {
    const about = isEstimate(flow) ? "~" : "";
    const cell = (text, kind) => element("td", { class: kind }, text);
    const vlan = flow.vlan > 0 ? ` in VLAN ${flow.vlan}` : "";
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, flow.from ?? "–"),
      cell(flow.to ?? "–"),
      cell(`${flow.protocol}${vlan}`),
      cell(end(flow.source, flow.source_port, flow.source_mac)),
      cell(end(flow.destination, flow.destination_port, flow.destination_mac)),
      cell(bits(flow.bits_per_s), "number"),
      element("td", {}, ...this.drops(flow)),
      cell(`${about}${bytes(flow.bytes)}`, "number"),
      cell(flow.frames > 0 ? (flow.segments / flow.frames).toFixed(1) : "–", "number"),
      cell(flow.resent === undefined ? "–" : `${about}${count(flow.resent)}`, "number"),
      cell(flow.last_seen_s < 2 ? "now" : duration(flow.last_seen_s), "number"),
      cell(flow.carried_by),
    );
  }

  /** The drops; a press traces a frame of the flow. */
  drops({ from, trace, drops = {} }) {
    const told = Object.entries(drops).sort(([, one], [, other]) => other - one);
    if (told.length === 0) return ["–"];
    const words = told.map(([name, frames]) => `${count(frames)} ${reason(name)}`).join(", ");
    if (!from || !trace) return [element("span", { class: "bad" }, words)];
    const button = element("button", { type: "button", class: "bad", title: "Show why, step by step" }, words);
    button.addEventListener("click", () => this.trace(from, trace));
    return [button];
  }
}

const NUMBERS = new Set(["Rate", "Bytes", "Segments", "Resent", "Seen"]);

/** Whether some of the flow's frames were not looked at. */
function isEstimate({ sampled, frames, drops = {} }) {
  return sampled < Object.values(drops).reduce((sum, dropped) => sum + dropped, frames);
}

/** One end of a flow: its address and port, or its MAC address. */
function end(ip, port, mac) {
  if (!ip) return mac;
  if (port === undefined) return ip;
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}
