// Elements made by hand. Text goes in as text, so no name of a guest or of the configuration becomes markup.

/** The element of this id. */
export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is no element is text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Sets an element's text, if it is another one: what does not change is not read out again. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

const drawn = new WeakMap();

/** Makes an element's children anew by `make`, if what they show is not what it was. */
export function redraw(target, shows, make) {
  const key = JSON.stringify(shows);
  if (drawn.get(target) === key) return;
  drawn.set(target, key);
  target.replaceChildren(...make());
}

/** A table of rows that each begin with a header; `heads` stand above. */
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
