// The time that all charts show: ten minutes, an hour or a day, chosen beside any of them.

import { element } from "./dom.js";
import { RANGES } from "./past.js";

export class Ranges {
  /** `changed` is called after a person has chosen another range. */
  constructor(changed) {
    this.seconds = RANGES[0][0];
    this.changed = changed;
    this.groups = [];
  }

  /** A group of buttons for beside a chart. */
  buttons() {
    const button = ([seconds, name]) => {
      const made = element("button", { type: "button", "aria-pressed": String(seconds === this.seconds) }, name);
      made.addEventListener("click", () => this.choose(seconds));
      return made;
    };
    const group = element("div", { class: "ranges", role: "group", "aria-label": "Time shown" }, ...RANGES.map(button));
    this.groups = [...this.groups.filter((other) => other.isConnected), group];
    return group;
  }

  choose(seconds) {
    this.seconds = seconds;
    for (const group of this.groups) {
      RANGES.forEach(([other], place) => group.children[place].setAttribute("aria-pressed", String(other === seconds)));
    }
    this.changed();
  }
}
