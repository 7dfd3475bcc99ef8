// Problems, worst first: each severity is a word, not only a colour.

import { byId, element, redraw } from "./dom.js";

export class Findings {
  show({ findings }) {
    const shows = findings.map(({ severity, error, seen, wanted, remedy }) => [severity, error, seen, wanted, remedy]);
    redraw(byId("finding-list"), shows, () =>
      shows.length > 0 ? shows.map(entry) : [element("li", {}, "Nothing is wrong.")],
    );
  }
}

/** `1 error, 2 warnings`; empty if there is neither. */
export function graver(findings) {
  const count = (severity) => findings.filter((finding) => finding.severity === severity).length;
  const told = ["error", "warning"].map((severity) => [count(severity), severity]).filter(([number]) => number > 0);
  return told.map(([number, severity]) => `${number} ${severity}${number === 1 ? "" : "s"}`).join(", ");
}

function entry([severity, error, ...parts]) {
  const names = ["seen", "wanted", "remedy"];
  const part = (text, place) => (text ? [element("div", { class: "ago" }, `${names[place]}: `, element("span", {}, text))] : []);
  return element("li", {}, element("b", { class: severity }, severity), ` ${error}`, ...parts.flatMap(part));
}
