// Which worker serves which queue, and on which core it runs.

import { byId, element, redraw } from "./dom.js";
import { core, counted, percent } from "./text.js";

/** Number of a worker's queues that are named, the busiest first. */
const NAMED = 12;

export class Workers {
  show(state, busy, choose) {
    const workers = state.workers.map(({ worker, cpu, sleeps }) => ({ worker, cpu, sleeps, queues: [] }));
    for (const port of state.ports) {
      port.queues.forEach(([worker, load], queue) => workers[worker]?.queues.push({ name: port.name, queue, load }));
    }
    const shows = workers.map(({ worker, cpu, queues }, place) => {
      queues.sort((one, other) => other.load - one.load);
      const named = queues.slice(0, NAMED).map(({ name, queue, load }) => [name, queue, percent(load)]);
      return { worker, cpu, busy: percent(busy[place] ?? 0), all: queues.length, named };
    });
    redraw(byId("worker-list"), shows, () => shows.map((one) => card(one, choose)));
  }
}

function card({ worker, cpu, busy, all, named }, choose) {
  const more = all > named.length ? ` (the ${named.length} busiest are listed)` : "";
  return element(
    "article",
    {},
    element("h3", {}, `Worker ${worker}`),
    element("p", {}, `${core(cpu)}, ${busy} busy, ${counted(all, "queue")}${more}`),
    element("ul", { class: "queues" }, ...named.map((queue) => chip(queue, choose))),
  );
}

function chip([name, queue, load], choose) {
  const link = element("a", { href: `#port=${encodeURIComponent(name)}` }, `${name}.${queue}`);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    choose(name);
  });
  return element("li", {}, link, element("span", { class: "load" }, ` ${load}`));
}
