// The actions, as data: what a person fills in, the request that it makes, the same by the command line, and what takes it
// back. changes.js carries all of them out.
//
// A step is a request: `method`, `path` and `body`, with `command`, which does the same in a shell. A step that takes something
// back has `holds`, what the daemon must still say for that to be right, or `tag`, which the request names as what it changes.

import { quoted } from "./text.js";

const pathOf = (name, rest = "") => `/v1/ports/${encodeURIComponent(name)}${rest}`;
const option = (value, text = value) => ({ value, text });
const numbers = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, place) => option(String(from + place)));

/** A number if one is written; anything else is the daemon's to refuse. */
const numeric = (text) => (/^\d+$/.test(text) ? Number(text) : text);

/** Sets keys of a port; null removes one. */
function set(name, keys) {
  const words = Object.entries(keys).map(([key, value]) => quoted(`${key}=${value ?? ""}`));
  return { method: "PATCH", path: pathOf(name), body: keys, command: `millrace port set ${quoted(name)} ${words.join(" ")}` };
}

/** An action that sets the keys that `keysOf` makes of what is filled in. What it takes back are the values before. */
function setting(action, keysOf) {
  return {
    ...action,
    button: "Set",
    before: (name) => pathOf(name),
    step: ({ name }, values) => set(name, keysOf(values)),
    undo: ({ name }, values, before, after) => {
      const picked = ({ config }) => Object.fromEntries(Object.keys(keysOf(values)).map((key) => [key, config[key] ?? null]));
      return { ...set(name, picked(before)), holds: { path: pathOf(name), read: picked, is: picked(after) } };
    },
  };
}

function addRule(name, rule, number) {
  const at = number ? ` --number ${number}` : "";
  const body = number ? { rule, number: numeric(number) } : { rule };
  return { method: "POST", path: pathOf(name, "/acl"), body, command: `millrace acl add ${quoted(name)} ${rule}${at}` };
}

const removeRule = (name, number, rule = "") => ({
  method: "DELETE",
  path: pathOf(name, `/acl/${encodeURIComponent(number)}`),
  command: `millrace acl remove ${quoted(name)} ${quoted(String(number))} ${rule}`.trim(),
});

const rulesOf = ({ rules }) => rules.map(({ rule }) => rule);

const setRsc = (name, policy, command) => ({ method: "PUT", path: `/ports/${encodeURIComponent(name)}/rsc`, body: { policy }, command });

const moveQueue = (name, queue, worker) => ({
  method: "PUT",
  path: pathOf(name, `/queues/${queue}`),
  body: { worker: numeric(worker) },
  command: `millrace queue move ${quoted(name)} ${queue} --worker ${worker}`,
});

const removePort = (name) => ({
  method: "DELETE",
  path: pathOf(name),
  command: `millrace port remove ${quoted(name)}`,
  asks: `Remove port ${name}? Its guest or network is cut off until the port is added again.`,
});

/** Adds a port with all its settings. As a command line it has those of a port's usual options, and the others as keys. */
function addPort(config) {
  const { name, ...keys } = config;
  const written = (value) => (Array.isArray(value) ? value.join(",") : String(value));
  const words = Object.entries(keys).map(([key, value]) => (OPTIONS.has(key) ? `--${key} ${quoted(written(value))}` : quoted(`${key}=${written(value)}`)));
  return { method: "POST", path: "/v1/ports", body: config, command: `millrace port add ${quoted(name)} ${words.join(" ")}`.trim() };
}

const OPTIONS = new Set(["tap", "veth", "packet", "team", "xdp", "vhost-user", "netns", "queues", "mtu", "vlan", "trunk", "native", "mac", "rate", "rate-to"]);

/** The actions of a port. `context` has its `name`, its entry of the `state`, its `detail` and the number of `workers`. */
export const PORT_ACTIONS = [
  {
    id: "rsc",
    title: "Coalescing (RSC)",
    button: "Set",
    fields: ({ state }) => [{ name: "policy", label: "toward the port", options: [option("on"), option("off")], value: state.rsc === "off" ? "on" : "off" }],
    step: ({ name }, { policy }) => setRsc(name, policy, `millrace rsc ${policy} ${quoted(name)}`),
    says: ({ name }, { policy }) => `RSC toward ${name} was turned ${policy}.`,
    undo: ({ name, state }, values, before, after, tag) => ({ ...setRsc(name, state.rsc, `millrace port set ${quoted(name)} rsc=${state.rsc}`), tag }),
  },
  setting(
    {
      id: "vlan",
      title: "VLAN",
      fields: () => [
        { name: "mode", label: "mode", options: [option("vlan", "access"), option("trunk")] },
        { name: "vlans", label: "VLANs", placeholder: "10, or of a trunk 10,20-30" },
      ],
      says: ({ name }, { mode, vlans }) => `Port ${name} has ${mode === "trunk" ? "a trunk of" : "VLAN"} ${vlans}.`,
    },
    ({ mode, vlans }) => (mode === "trunk" ? { trunk: vlans, vlan: null } : { vlan: numeric(vlans), trunk: null, native: null }),
  ),
  setting(
    {
      id: "rate",
      title: "Rate",
      fields: () => [
        { name: "way", label: "of what", options: [option("rate", "the port sends"), option("rate-to", "the port receives")] },
        { name: "rate", label: "limit", placeholder: "1Gbit, empty for none", isOptional: true },
      ],
      says: ({ name }, { way, rate }) => `What port ${name} ${way === "rate" ? "sends" : "receives"} is ${rate ? `limited to ${rate}` : "not limited"}.`,
    },
    ({ way, rate }) => ({ [way]: rate || null }),
  ),
  {
    id: "rule",
    title: "Rule",
    button: "Add",
    fields: () => [
      { name: "rule", label: "rule", placeholder: "deny in tcp to 10.0.0.0/8 port 22-23", isLong: true },
      { name: "number", label: "as number", placeholder: "last", isOptional: true, isShort: true },
    ],
    step: ({ name }, { rule, number }) => addRule(name, rule, number),
    says: ({ name }, { rule }) => `Port ${name} has the rule ${rule}.`,
    undo: ({ name }, { number }, before, after) => {
      const place = Number(number) || after.rules.length;
      const read = (body) => rulesOf(body)[place - 1];
      return { ...removeRule(name, place, read(after)), holds: { path: pathOf(name, "/acl"), read, is: read(after) } };
    },
  },
  {
    id: "rule-removed",
    title: "Remove a rule",
    button: "Remove",
    fields: () => [{ name: "number", label: "number", placeholder: "1", isShort: true }],
    before: (name) => pathOf(name, "/acl"),
    step: ({ name }, { number }, before) => {
      const rule = before?.rules[number - 1]?.rule;
      return { ...removeRule(name, number, rule), asks: rule && `Remove rule ${number} of port ${name}: ${rule}?` };
    },
    says: ({ name }, { number }) => `Rule ${number} of port ${name} was removed.`,
    undo: ({ name }, { number }, before, after) => ({
      ...addRule(name, before.rules[number - 1].rule, number),
      holds: { path: pathOf(name, "/acl"), read: rulesOf, is: rulesOf(after) },
    }),
  },
  {
    id: "queue",
    title: "Move a queue",
    button: "Move",
    fields: ({ detail, workers }) => [
      { name: "queue", label: "queue", options: numbers(0, detail?.queues.length ?? 0) },
      { name: "worker", label: "to worker", options: numbers(0, workers) },
    ],
    step: ({ name }, { queue, worker }) => moveQueue(name, queue, worker),
    says: ({ name }, { queue, worker }) => `Worker ${worker} has queue ${queue} of port ${name}.`,
    undo: ({ name, detail }, { queue, worker }) => ({
      ...moveQueue(name, queue, detail.queues[queue].worker),
      holds: { path: pathOf(name), read: ({ queues }) => queues[queue]?.worker, is: Number(worker) },
    }),
  },
  {
    id: "capture",
    title: "Capture",
    button: "Download",
    file: ({ name }) => `${name}.pcapng`,
    fields: () => [
      { name: "seconds", label: "seconds", value: "10", isShort: true },
      { name: "count", label: "frames", value: "1000", isShort: true },
    ],
    step: ({ name }, { seconds, count }) => ({
      method: "POST",
      path: "/v1/captures",
      body: { port: name, seconds: numeric(seconds), count: numeric(count) },
      command: `millrace capture ${quoted(name)} -w ${quoted(`${name}.pcapng`)} --seconds ${seconds} --count ${count}`,
    }),
    says: ({ name }) => `The frames of port ${name} are in ${name}.pcapng.`,
  },
  {
    id: "remove",
    title: "Remove the port",
    button: "Remove",
    fields: () => [],
    before: (name) => pathOf(name),
    step: ({ name }) => removePort(name),
    says: ({ name }) => `Port ${name} was removed.`,
    undo: (context, values, { config }) => addPort(config),
  },
];

/** Adds a port of one of the usual kinds. */
export const ADD_PORT = {
  id: "add",
  title: "Add a port",
  button: "Add",
  fields: () => [
    { name: "name", label: "name", placeholder: "vm1" },
    { name: "kind", label: "kind", options: [option("tap", "TAP"), option("vhost-user"), option("packet", "uplink")] },
    { name: "device", label: "device or socket", placeholder: "tap1, /run/millrace/vm1.sock, eth1" },
    { name: "vlan", label: "VLAN", placeholder: "0", isOptional: true, isShort: true },
  ],
  step: (context, { name, kind, device, vlan }) => addPort({ name, [kind]: device, ...(vlan && { vlan: numeric(vlan) }) }),
  says: (context, { name }) => `Port ${name} was added.`,
  undo: (context, { name }, before, after) => ({ ...removePort(name), holds: { path: pathOf(name), read: ({ config }) => config, is: after.config } }),
};
