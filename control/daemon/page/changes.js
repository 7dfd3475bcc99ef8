// Carries out actions: asks before something is removed, sends the request with the key, and lists what was changed, each with
// its command line and a button that takes it back.

import { byId, element, say } from "./dom.js";

/** Changes that are listed. */
const LISTED = 50;
/** Timeout of an answer. A change may wait for another one, and for a device. */
const TIMEOUT_MS = 60_000;

export class Changes {
  /** `samplesOf` returns the last samples of a port. */
  constructor(samplesOf) {
    this.samplesOf = samplesOf;
    /** Of each port, what was last changed and the samples before. */
    this.last = new Map();
    this.input = byId("key");
    byId("key-form").addEventListener("submit", (event) => event.preventDefault());
  }

  /** The key is kept only in its box, for this visit, and in no storage of the browser. */
  get key() {
    return this.input.value.trim();
  }

  /** Takes the key out of the URL that `millrace page` printed. */
  keyFromAddress() {
    const given = /^#key=([\w-]+)$/.exec(location.hash);
    if (!given) return;
    this.input.value = given[1];
    history.replaceState(null, "", location.pathname);
    say(byId("key-said"), "The page has a key: its buttons change the switch.");
  }

  /** Carries out an action. Returns what to tell, and whether it was done. */
  async carryOut(action, context, values) {
    try {
      this.needsKey();
      const before = action.before && (await this.read(action.before(context.name)));
      const step = action.step(context, values, before?.body);
      if (step.asks && !(await confirmed(step))) return { text: "Nothing was changed." };
      const samples = [...this.samplesOf(context.name)];
      const after = await this.send(step, { tag: before?.tag, isFile: Boolean(action.file) });
      if (action.file) download(after.body, action.file(context));
      const text = action.says(context, values);
      const undo = action.undo?.(context, values, before?.body, after.body, after.tag);
      if (!action.file) this.note({ name: context.name || values.name, text, step, undo, samples });
      return { text, isDone: true };
    } catch (error) {
      return { text: error.message, isRefused: true };
    }
  }

  needsKey() {
    if (this.key !== "") return;
    this.input.scrollIntoView({ block: "center" });
    this.input.focus({ preventScroll: true });
    throw new Error("This needs a key: as an admin of this host run `millrace page`, and open the address that it prints.");
  }

  async read(path) {
    return this.send({ method: "GET", path }, {});
  }

  /** Sends a step. Throws what the daemon says if it refuses. */
  async send({ method, path, body }, { tag, isFile }) {
    const headers = { authorization: `Bearer ${this.key}`, ...(body && { "content-type": "application/json" }), ...(tag && { "if-match": tag }) };
    const signal = isFile ? undefined : AbortSignal.timeout(TIMEOUT_MS);
    let answer;
    try {
      answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
    } catch (error) {
      throw new Error(`The daemon does not answer: ${error.message}`);
    }
    if (!answer.ok) {
      const told = await answer.json().catch(() => ({}));
      throw new Error(told.detail ?? `The daemon answered ${answer.status}.`);
    }
    const is = answer.headers.get("etag");
    if (isFile) return { body: await answer.blob(), tag: is };
    return { body: answer.status === 204 ? null : await answer.json(), tag: is };
  }

  note(change) {
    this.last.set(change.name, change);
    byId("no-changes").hidden = true;
    const status = element("p", { role: "status" });
    const entry = element("li", {}, `${change.text} `, element("code", {}, change.step.command));
    if (change.undo) {
      const button = element("button", { type: "button" }, "Undo");
      button.addEventListener("click", () => this.takeBack(change, button, status));
      entry.append(element("p", { class: "undo" }, button, " ", element("code", {}, change.undo.command)));
    }
    entry.append(status);
    byId("change-list").prepend(entry);
    while (byId("change-list").children.length > LISTED) byId("change-list").lastElementChild.remove();
  }

  /** Takes a change back, unless somebody has changed the same since. */
  async takeBack({ name, text, undo }, button, status) {
    button.disabled = true;
    try {
      this.needsKey();
      const tag = undo.holds ? await this.stillHolds(undo.holds) : undo.tag;
      if (undo.asks && !(await confirmed(undo))) throw new Error("Nothing was changed.");
      const samples = [...this.samplesOf(name)];
      await this.send(undo, { tag });
      this.last.set(name, { name, text: `Undone: ${text}`, samples });
      say(status, "It was undone.");
      button.parentElement.hidden = true;
    } catch (error) {
      say(status, error.message);
      button.disabled = false;
      if (document.activeElement === document.body) button.focus();
    }
  }

  async stillHolds({ path, read, is }) {
    const { body, tag } = await this.read(path);
    const now = JSON.stringify(read(body) ?? null);
    if (now === JSON.stringify(is ?? null)) return tag;
    throw new Error(`It was changed again since: it is ${now} now, and was left as ${JSON.stringify(is)}.`);
  }
}

/** Asks whether to carry out a step, in the page's dialogue. */
function confirmed({ asks, command }) {
  const dialog = byId("ask");
  say(byId("ask-text"), asks);
  say(byId("ask-command"), command);
  dialog.returnValue = "";
  dialog.showModal();
  byId("ask-no").focus();
  return new Promise((resolve) => {
    const answer = (value) => () => dialog.close(value);
    byId("ask-yes").onclick = answer("yes");
    byId("ask-no").onclick = answer("no");
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
  });
}

/** Hands a file to the browser, which writes it where it writes downloads. */
function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
