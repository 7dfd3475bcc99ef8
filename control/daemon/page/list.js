// A list of which only the visible rows exist, however long it is.
//
// It is a grid with one tab stop: the arrow keys move the active row, Enter or a click chooses it.

import { byId, element } from "./dom.js";

/** Extra rows above and below the visible ones. */
const SPARE = 4;

export class List {
  /** `classes` are those of a row's cells, `fill` writes an item into a row, and `choose` is called with an item's name. */
  constructor({ classes, fill, choose }) {
    this.classes = classes;
    this.fillRow = fill;
    this.choose = choose;
    this.shown = [];
    this.rows = [];
    this.active = null;
    this.chosen = null;
    this.grid = byId("grid");
    this.body = byId("rows");
    this.grid.addEventListener("scroll", () => this.draw(), { passive: true });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("focus", () => {
      this.active ??= this.chosen ?? this.shown[0]?.name ?? null;
      this.draw();
    });
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.grid);
  }

  /** Shows these items, each with a `name`. */
  show(items) {
    this.shown = items;
    this.grid.setAttribute("aria-rowcount", String(items.length + 1));
    this.draw();
  }

  /** Marks the item that is shown in detail. */
  mark(name) {
    this.chosen = name;
    this.active = name;
    this.draw();
  }

  /** The height of a row, from the style sheet. */
  get height() {
    this.measured ??= parseFloat(getComputedStyle(this.grid).getPropertyValue("--row"));
    return this.measured;
  }

  draw() {
    const { height } = this;
    this.body.style.height = `${this.shown.length * height}px`;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / height) - SPARE);
    const wanted = Math.ceil(this.grid.clientHeight / height) + 2 * SPARE;
    const items = this.shown.slice(first, first + wanted);
    while (this.rows.length < items.length) this.rows.push(this.body.appendChild(this.row()));
    while (this.rows.length > items.length) this.rows.pop().remove();
    items.forEach((item, place) => this.fill(this.rows[place], item, first + place));
    const active = items.findIndex(({ name }) => name === this.active);
    if (active >= 0) this.grid.setAttribute("aria-activedescendant", this.rows[active].id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  row() {
    const cell = (name) => element("span", { role: "gridcell", class: name });
    return element("div", { role: "row" }, ...this.classes.map(cell));
  }

  fill(row, item, place) {
    row.id = `row-${place}`;
    row.item = item.name;
    row.setAttribute("aria-rowindex", String(place + 2));
    row.setAttribute("aria-selected", String(item.name === this.chosen));
    row.classList.toggle("active", item.name === this.active);
    row.style.transform = `translateY(${place * this.height}px)`;
    this.fillRow(row.children, item);
  }

  click(event) {
    const row = event.target.closest("[role=row]");
    if (row) this.choose(row.item);
  }

  key(event) {
    if (event.key === "Enter" || event.key === " ") {
      if (this.active) this.choose(this.active);
      event.preventDefault();
      return;
    }
    const last = this.shown.length - 1;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -last, End: last };
    const step = steps[event.key];
    if (step === undefined || last < 0) return;
    event.preventDefault();
    const now = this.shown.findIndex(({ name }) => name === this.active);
    const next = now < 0 ? 0 : Math.min(last, Math.max(0, now + step));
    this.active = this.shown[next].name;
    this.reveal(next);
    this.draw();
  }

  /** Scrolls until a row is visible, below the heads. */
  reveal(place) {
    const { height, grid } = this;
    const room = grid.clientHeight - grid.firstElementChild.offsetHeight;
    const top = place * height;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + height > grid.scrollTop + room) grid.scrollTop = top + height - room;
  }
}
