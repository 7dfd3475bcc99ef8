// The form of an action: its fields and its button in a line, and below them the same as a command line.

import { element, redraw, say } from "./dom.js";

export class ActionForm {
  /** `changes` carries the action out. */
  constructor(action, changes) {
    Object.assign(this, { action, changes });
    this.inputs = new Map();
    this.fields = element("span", { class: "fields" });
    this.button = element("button", { id: `act-${action.id}` }, action.button);
    this.command = element("code");
    this.answer = element("p", { role: "status" });
    const legend = element("legend", {}, action.title);
    const row = element("fieldset", {}, legend, this.fields, this.button);
    this.form = element("form", { class: "action" }, row, this.command, this.answer);
    this.form.addEventListener("input", () => this.write());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.carryOut();
    });
  }

  /** Offers what there is now. What a person has filled in stays. */
  show(context) {
    this.context = context;
    for (const field of this.action.fields(context)) this.showField(field);
    this.write();
  }

  showField(field) {
    const { name, label, options, value = "", placeholder, isLong, isShort } = field;
    if (!this.inputs.has(name)) {
      const kind = options ? element("select", { name }) : element("input", { name, value, placeholder, autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
      kind.required = !field.isOptional;
      kind.classList.toggle("long", Boolean(isLong));
      kind.classList.toggle("short", Boolean(isShort));
      this.inputs.set(name, kind);
      this.fields.append(element("label", {}, `${label} `, kind));
    }
    // A choice that is offered because of what is now, until a person chooses.
    const offered = [options?.map(({ value }) => value), value];
    const input = this.inputs.get(name);
    if (options) redraw(input, offered, () => options.map((one) => element("option", { value: one.value, selected: one.value === value }, one.text)));
  }

  get values() {
    return Object.fromEntries([...this.inputs].map(([name, input]) => [name, input.value.trim()]));
  }

  /** Writes the command line, as far as it is filled in. */
  write() {
    const filled = [...this.inputs].map(([name, input]) => [name, input.value.trim() || (input.required ? "…" : "")]);
    say(this.command, this.action.step(this.context, Object.fromEntries(filled)).command);
  }

  async carryOut() {
    this.button.disabled = true;
    say(this.answer, this.action.file ? "Capturing." : "Waiting for the switch.");
    const { text, isRefused } = await this.changes.carryOut(this.action, this.context, this.values);
    say(this.answer, text);
    this.answer.classList.toggle("refused", Boolean(isRefused));
    this.button.disabled = false;
    if (document.activeElement === document.body) this.button.focus();
  }
}
