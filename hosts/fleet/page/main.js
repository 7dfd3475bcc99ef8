// The fleet's page: asks its server once a second; each part shows its part of the answer.

import { byId, say } from "./dom.js";
import { Findings, graver } from "./findings.js";
import { showHistory, showMoves, showRollOut } from "./going_on.js";
import { HostView } from "./host.js";
import { Hosts, condition } from "./hosts.js";
import { counted } from "./text.js";

const SECOND = 1000;
const GRAVITY = { error: 0, warning: 1, info: 2 };
/** More findings than these are only counted. */
const MOST = 200;

const findings = new Findings();
const view = new HostView();
const hosts = new Hosts((name) => choose(name, true));
let last = null;
let conditions = new Map();

function choose(name, focus) {
  view.choose(name, focus);
  hosts.mark(name);
  history.replaceState(null, "", `#host=${encodeURIComponent(name)}`);
  if (last) view.show(last.status);
}

/** Chooses the host that the URL names, if any. */
function fromAddress() {
  const named = /^#host=(.+)$/.exec(location.hash);
  if (!named) return;
  try {
    choose(decodeURIComponent(named[1]), false);
  } catch {
    // A truncated URL: no host is chosen.
  }
}

/** Announces which hosts changed their condition; more than three are only counted. */
function tellNews(all) {
  const changed = all.filter((host) => conditions.has(host.name) && conditions.get(host.name) !== condition(host));
  if (changed.length > 3) say(byId("news"), `${changed.length} hosts changed`);
  else if (changed.length > 0)
    say(byId("news"), changed.map((host) => `host ${host.name} is ${condition(host)}`).join(", "));
  conditions = new Map(all.map((host) => [host.name, condition(host)]));
}

/** The findings of all hosts, worst first, each with its host's name. */
function allFindings(all) {
  const told = ({ name, status }) =>
    (status?.findings ?? []).map((finding) => ({ ...finding, error: `host ${name}: ${finding.error}` }));
  return all.flatMap(told).sort((one, other) => GRAVITY[one.severity] - GRAVITY[other.severity]);
}

function showFindings(found) {
  findings.show({ findings: found.slice(0, MOST) });
  const more = found.length - MOST;
  say(byId("more-findings"), more > 0 ? `And ${counted(more, "finding")} more: choose a host.` : "");
}

function show(state) {
  const { status } = state;
  const found = allFindings(status.hosts);
  const away = status.hosts.filter((host) => !host.status).length;
  const wrong = [away > 0 && `${away} away`, graver(found)].filter(Boolean).join(", ");
  const revision = status.desired ? `revision ${status.desired.revision}` : "no revision yet";
  say(byId("summary"), `${revision}, ${counted(status.hosts.length, "host")}, ${wrong || "nothing wrong"}`);
  document.title = wrong ? `${wrong} - Millrace fleet` : "Millrace fleet";
  tellNews(status.hosts);
  hosts.show(status.hosts);
  view.show(status);
  showRollOut(status);
  showMoves(status);
  showFindings(found);
  showHistory(state);
}

async function ask() {
  try {
    const answer = await fetch("/state", { signal: AbortSignal.timeout(20 * SECOND) });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
    last = body;
    byId("trouble").hidden = true;
    show(body);
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

addEventListener("hashchange", fromAddress);
fromAddress();
askForEver();
