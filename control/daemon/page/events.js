// Events as they come, newest first.

import { byId, element, redraw } from "./dom.js";
import { duration } from "./text.js";

export class Events {
  show({ events, uptime_s: now }) {
    const ago = (at) => (now - at < 1 ? "now" : `${duration(now - at)} ago`);
    const shows = events.toReversed().map(({ at_s: at, count, text }) => [ago(at), count, text]);
    redraw(byId("event-list"), shows, () =>
      shows.length > 0 ? shows.map(entry) : [element("li", {}, "Nothing has happened yet.")],
    );
  }
}

function entry([ago, count, text]) {
  const times = count > 1 ? [element("b", {}, ` ${count} times`)] : [];
  return element("li", {}, element("span", { class: "ago" }, ago), ` ${text}`, ...times);
}
