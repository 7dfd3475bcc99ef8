// The page: polls the daemon once a second; each part shows its part of the response.

import { ActionForm } from "./action-form.js";
import { ADD_PORT } from "./actions.js";
import { Changes } from "./changes.js";
import { byId, say } from "./dom.js";
import { Events } from "./events.js";
import { Findings, graver } from "./findings.js";
import { Flows } from "./flows.js";
import { History } from "./history.js";
import { joined, Past } from "./past.js";
import { Overview } from "./overview.js";
import { PortView } from "./port.js";
import { busiest, Ports } from "./ports.js";
import { Ranges } from "./ranges.js";
import { counted, duration } from "./text.js";
import { dropping, Tiles } from "./tiles.js";
import { Topology } from "./topology.js";
import { Trace } from "./trace.js";
import { Workers } from "./workers.js";

const SECOND = 1000;

/** Milliseconds between two questions for the lines of the list. */
const SPARKS = 60 * SECOND;

const history = new History();
const past = new Past(answered);
const ranges = new Ranges(() => showAll());
const overview = new Overview(ranges);
const tiles = new Tiles();
const topology = new Topology((name) => choose(name, true));
const workers = new Workers();
const events = new Events();
const findings = new Findings();
const trace = new Trace();
const flows = new Flows(answered, (port, frame) => trace.of(port, frame));
const changes = new Changes((name) => history.port(name));
const view = new PortView(changes, ranges, answered);
const adding = new ActionForm(ADD_PORT, changes);
const ports = new Ports((name) => choose(name, true));
let states = new Map();
let sparksAsked = 0;

function choose(name, focus) {
  look(name, focus);
  globalThis.history.replaceState(null, "", `#port=${encodeURIComponent(name)}`);
}

/** Shows a port. One that the page chose itself does not get into the URL: the next visit may choose another. */
function look(name, focus) {
  view.choose(name, focus);
  ports.mark(name);
  trace.enterBy(name);
  show();
  askDetail();
}

/** Chooses the port that the URL names, if any. */
function fromAddress() {
  const named = /^#port=(.+)$/.exec(location.hash);
  if (!named) return;
  try {
    choose(decodeURIComponent(named[1]), false);
  } catch {
    // A truncated URL: no port is chosen.
  }
}

async function answered(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(10 * SECOND) });
  if (!answer.ok) throw new Error(`the daemon answered ${answer.status}`);
  return answer.json();
}

async function askDetail() {
  if (!view.name) return;
  try {
    view.detail = await answered(`/ports/${encodeURIComponent(view.name)}`);
  } catch {
    // The port was removed, or the daemon is gone: the next state shows it.
  }
}

/** Announces which ports changed state; more than three are only counted. */
function tellNews(state) {
  const changed = state.ports.filter(({ name, state }) => states.has(name) && states.get(name) !== state);
  if (changed.length > 3) say(byId("news"), `${changed.length} ports changed state`);
  else if (changed.length > 0) say(byId("news"), changed.map(({ name, state }) => `port ${name} is ${state}`).join(", "));
  states = new Map(state.ports.map(({ name, state }) => [name, state]));
}

function show() {
  const state = history.last;
  if (!state) return;
  const up = state.ports.filter((port) => port.state === "up").length;
  const ports_up = `${up} of ${counted(state.ports.length, "port")} up`;
  const wrong = wrongs(state);
  say(
    byId("summary"),
    `${ports_up}, ${wrong || "nothing wrong"}, ${counted(state.macs, "address", "addresses")}, ${counted(state.workers.length, "worker")}; version ${state.version}, running for ${duration(state.uptime_s)}`,
  );
  document.title = wrong ? `${wrong} - Millrace` : "Millrace";
  if (view.name) {
    const port = state.ports.find(({ name }) => name === view.name);
    view.show(port, history.port(view.name), state.workers.length);
  }
}

/** What is wrong in a few words; empty if nothing is. */
function wrongs(state) {
  const drops = dropping(state.ports).length;
  const told = drops > 0 ? `${counted(drops, "port drops", "ports drop")} frames` : "";
  return [graver(state.findings), told].filter(Boolean).join(", ");
}

/** Shows all that has a past. */
function showAll() {
  const state = history.last;
  if (!state) return;
  const workers = state.workers.length;
  const refreshed = [600, 3600, ranges.seconds].map((range) => past.refresh(range, workers));
  const seconds = joined(past.of(600), history.samples);
  tiles.show(state, past.of(3600), seconds);
  overview.show(history, ranges.seconds > 600 ? past.of(ranges.seconds) : seconds, ranges.seconds);
  topology.show(state, view.name);
  show();
  return Promise.all(refreshed);
}

/** Asks for the lines of the list, now and then. */
async function askSparks() {
  if (Date.now() - sparksAsked < SPARKS) return;
  sparksAsked = Date.now();
  try {
    ports.past(await answered("/sparks"));
  } catch {
    // The next state shows that the daemon is gone.
  }
}

async function ask() {
  try {
    const [state] = await Promise.all([answered("/state"), askDetail()]);
    byId("trouble").hidden = true;
    if (!history.take(state)) return;
    tellNews(state);
    ports.show(state.ports);
    workers.show(state, history.samples.at(-1)?.busy ?? [], (name) => choose(name, true));
    findings.show(state);
    byId("token-hint").hidden = !state.may_change;
    trace.show(state);
    events.show(state);
    if (!view.name && state.ports.length > 0) look(busiest(state.ports), false);
    showAll();
    askSparks();
    flows.refresh();
  } catch (error) {
    say(byId("trouble"), `This page is out of date: ${error.message}. It retries every second.`);
    byId("trouble").hidden = false;
  }
}

/** Once a second while the page is visible. */
async function askForEver() {
  for (;;) {
    if (!document.hidden) await ask();
    await new Promise((resume) => setTimeout(resume, SECOND));
  }
}

addEventListener("hashchange", () => {
  changes.keyFromAddress();
  fromAddress();
});
byId("add-port").append(adding.form);
adding.show({ name: "" });
changes.keyFromAddress();
fromAddress();
askForEver();
