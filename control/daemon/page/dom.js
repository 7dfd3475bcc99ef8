// DOM elements. Text is inserted as text, so no name from a guest or the configuration becomes markup.

/** The element of this id. */
export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a string among the children becomes text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Sets an element's text if it differs, so that unchanged text is not announced again. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

const drawn = new WeakMap();

/** Rebuilds an element's children with `make` if `shows` has changed. */
export function redraw(target, shows, make) {
  const key = JSON.stringify(shows);
  if (drawn.get(target) === key) return;
  drawn.set(target, key);
  target.replaceChildren(...make());
}

/** A table whose rows begin with a header cell, below `heads`. */
export function table(caption, heads, rows) {
  const head = (text, place) => element("th", { scope: "col", class: place > 0 && "number" }, text);
  const cells = ([first, ...others]) => [
    element("th", { scope: "row" }, first),
    ...others.map((text) => element("td", { class: "number" }, text)),
  ];
  return element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map(head))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
  );
}
