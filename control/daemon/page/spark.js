// Lines without axes: the past behind a number, and in the list of ports.

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes. */
export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A line through values from 0 to 1, with a gap where one is null. It fills its box, whatever size that has. */
export function spark(values, classes) {
  const width = Math.max(1, values.length - 1);
  const box = { viewBox: `0 0 ${width} 1`, preserveAspectRatio: "none", "aria-hidden": "true", class: `spark ${classes}` };
  const parts = runs(values).flatMap((run) => {
    const line = run.map(([place, value]) => `${place},${(1 - value).toFixed(3)}`).join(" ");
    const [first, last] = [run[0][0], run.at(-1)[0]];
    return [
      drawn("polygon", { points: `${first},1 ${line} ${last},1` }),
      drawn("polyline", { points: line, "vector-effect": "non-scaling-stroke" }),
    ];
  });
  return drawn("svg", box, ...parts);
}

/** The same for values of any size: the highest is 1, but never less than `least`. */
export function scaledSpark(values, least, classes) {
  const most = Math.max(least, ...values.map((value) => value ?? 0));
  return spark(values.map((value) => (value === null ? null : value / most)), classes);
}

/** Stretches of known values, as pairs of place and value. */
function runs(values) {
  const all = [[]];
  for (const [place, value] of values.entries()) {
    if (value === null) all.push([]);
    else all.at(-1).push([place, value]);
  }
  return all.filter((run) => run.length > 0);
}
