// One chart: lines drawn by uPlot, and below them a legend with the newest values as text.

import { element, redraw, say } from "./dom.js";

/** Number of colours among the style sheet's variables. */
const COLOURS = 8;
/** Pixels that are dragged over by intention. */
const LEAST = 8;
const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = new Set();

dark.addEventListener("change", () => charts.forEach((chart) => chart.build()));

export class Chart {
  /** `format` writes a value; `least` is the smallest maximum of the axis; `ranges` is told what is dragged over. */
  constructor(title, format, least, ranges) {
    Object.assign(this, { format, least, ranges });
    this.isDragging = false;
    this.names = [];
    this.data = [[]];
    this.plot = element("div", { class: "plot", "aria-hidden": "true", title: "Drag to zoom" });
    this.plot.addEventListener("mousedown", () => {
      this.isDragging = true;
      addEventListener("mouseup", () => (this.isDragging = false), { once: true });
    });
    this.legend = element("ul", { class: "legend" });
    this.figure = element("figure", {}, element("figcaption", {}, title), this.plot, this.legend);
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.plot);
    charts.add(this);
  }

  /** Another chart takes its place. */
  end() {
    this.watch.disconnect();
    this.drawing?.destroy();
    charts.delete(this);
  }

  /** Shows named lines over the last `span` seconds: `lines` are pairs of a name and its values at `times`, null for a gap. */
  show(times, lines, span) {
    this.span = span;
    const names = lines.map(([name]) => name);
    this.data = [times, ...lines.map(([, values]) => values)];
    if (JSON.stringify(names) !== JSON.stringify(this.names) || !this.drawing) {
      this.names = names;
      this.build();
    } else if (!this.isDragging) {
      this.drawing.setData(this.data);
    }
    redraw(this.legend, names, () => names.map((name, place) => this.entry(name, place)));
    lines.forEach(([, values], place) => {
      const newest = values.at(-1);
      say(this.legend.children[place].lastChild, newest === undefined || newest === null ? "no value yet" : this.format(newest));
    });
  }

  /** The seconds that are shown. */
  get shown() {
    const [from, to] = this.ranges.zoomed ?? [0, this.span];
    return to - from;
  }

  /** Shows in all charts what was dragged over in this one. */
  zoom(plot) {
    const { left, width } = plot.select;
    if (width < LEAST) return;
    const zoomed = [left, left + width].map((at) => plot.posToVal(at, "x"));
    plot.setSelect({ left: 0, width: 0 }, false);
    this.isDragging = false;
    this.ranges.zoom(zoomed);
  }

  entry(name, place) {
    const swatch = element("span", { class: `swatch c${(place % COLOURS) + 1}`, "aria-hidden": "true" });
    return element("li", {}, swatch, `${name} `, element("b"));
  }

  fit() {
    const width = this.plot.clientWidth;
    if (this.drawing && width > 0 && width !== this.drawing.width) this.drawing.setSize(this.size());
  }

  size() {
    return { width: Math.max(120, this.plot.clientWidth), height: this.plot.clientHeight || 150 };
  }

  build() {
    this.drawing?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const line = (name, place) => ({
      label: name,
      stroke: colour(`--c${(place % COLOURS) + 1}`),
      width: 2,
      points: { show: false },
    });
    const options = {
      ...this.size(),
      legend: { show: false },
      cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      hooks: { setSelect: [(plot) => this.zoom(plot)] },
      // At the bottom, room for half of the lowest label: an empty chart has no time axis there.
      padding: [8, 28, 8, 0],
      scales: { x: { time: true, range: (plot) => this.ranges.zoomed ?? lastSeconds(plot, this.span) }, y: { range: (_, low, high) => [0, Math.max(this.least, (high ?? 0) * 1.1)] } },
      axes: [
        { ...axis, space: 70, size: 28, values: (_, splits) => splits.map((at) => clock(at, this.shown)) },
        { ...axis, size: 84, values: (_, splits) => splits.map((value) => this.format(value)) },
      ],
      series: [{}, ...this.names.map(line)],
    };
    this.drawing = new globalThis.uPlot(options, this.data, this.plot);
  }
}

/** The axis of time ends with the newest sample. */
function lastSeconds({ data: [times] }, span) {
  const newest = times.at(-1) ?? Date.now() / 1000;
  return [newest - span, newest];
}

/** The time of day, without seconds on a long axis. */
const clock = (seconds, span) => new Date(seconds * 1000).toLocaleTimeString("en-GB").slice(0, span > 600 ? 5 : 8);
