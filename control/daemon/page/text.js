// Numbers as people read them.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function scaled(value, unit) {
  let place = 0;
  while (value >= 999.5 && place < PREFIXES.length - 1) {
    value /= 1000;
    place += 1;
  }
  const digits = value >= 99.95 || (place === 0 && Number.isInteger(value)) ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${PREFIXES[place]}${unit}`.trimEnd();
}

/** Orders names; numbers in them count by value. */
export const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });
/** The same without a unit, which the column's head has. */
export const short = (value) => scaled(value, "");
/** Bits per second. */
export const bits = (value) => scaled(value, "bit/s");
/** Anything else per second. */
export const perSecond = (value) => `${scaled(value, "")}/s`;
/** A count. */
export const count = (value) => value.toLocaleString("en");
/** A share in percent. */
export const percent = (value) => `${value.toFixed(value < 10 ? 1 : 0)} %`;
/** A size in memory. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${Number(value.toFixed(1))} ${units[place]}`;
}

/** A length of time. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** A number with its noun. */
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** The core of a worker. */
export const core = (cpu) => (cpu === null ? "any core" : `core ${cpu}`);

/** A drop reason in words. */
export const reason = (name) => name.replaceAll("_", " ");

/** A name as one word of a shell, whatever it contains. */
export const quoted = (name) => (/^[\w.,:=/@%+…-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);
