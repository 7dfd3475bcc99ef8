// The time that all charts show: ten minutes, an hour or a day, chosen beside any of them, or a part of it that a person has
// dragged over in one of them.

import { element } from "./dom.js";
import { RANGES } from "./past.js";

export class Ranges {
  /** `changed` is called after a person has chosen another range. */
  constructor(changed) {
    this.seconds = RANGES[0][0];
    /** The part that is shown, from and to in seconds; null for the whole range until now. */
    this.zoomed = null;
    this.changed = changed;
    this.groups = [];
  }

  /** A group of buttons for beside a chart. */
  buttons() {
    const button = ([seconds, name]) => {
      const made = element("button", { type: "button" }, name);
      made.addEventListener("click", () => this.choose(seconds));
      return made;
    };
    const group = element("div", { class: "ranges", role: "group", "aria-label": "Time shown" }, ...RANGES.map(button));
    this.groups = [...this.groups.filter((other) => other.isConnected), group];
    this.mark(group);
    return group;
  }

  /** Shows a whole range, until now. */
  choose(seconds) {
    Object.assign(this, { seconds, zoomed: null });
    this.groups.forEach((group) => this.mark(group));
    this.changed();
  }

  /** Shows a part of the range, until a range is chosen again. */
  zoom(zoomed) {
    this.zoomed = zoomed;
    this.groups.forEach((group) => this.mark(group));
    this.changed();
  }

  /** Marks the range that is shown; a part of it is none of them. */
  mark(group) {
    RANGES.forEach(([seconds], place) => {
      const isShown = seconds === this.seconds && !this.zoomed;
      group.children[place].setAttribute("aria-pressed", String(isShown));
    });
  }
}
