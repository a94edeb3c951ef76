// Elements, and the formats of sizes, counts and times.

const counts = new Intl.NumberFormat("en");
const sizes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const seconds = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const spans = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];

/** Create an element. `on` has its listeners, other keys are attributes. Null children are left out. */
export function make(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "on") {
      for (const [kind, listener] of Object.entries(value)) made.addEventListener(kind, listener);
    } else if (value !== null && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null));
  return made;
}

export function count(number, one = null) {
  return counts.format(number) + (one === null ? "" : ` ${one}${number === 1 ? "" : "s"}`);
}

export function size(bytes) {
  if (bytes < 1000) return count(bytes, "byte");
  const step = Math.min(5, Math.floor(Math.log10(bytes) / 3));
  return `${sizes.format(bytes / 1000 ** step)} ${["", "k", "M", "G", "T", "P"][step]}B`;
}

/** A local time to the second, with UTC in the tooltip. */
export function exact(text) {
  return make("time", { datetime: text, title: text }, seconds.format(new Date(text)));
}

/** A time relative to now. */
export function when(text) {
  const time = new Date(text);
  const age = (time - Date.now()) / 1000;
  const [unit, length] = UNITS.find(([, least]) => Math.abs(age) >= least) ?? ["minute", 60];
  const told = Math.abs(age) < 60 ? "just now" : spans.format(Math.round(age / length), unit);
  return make("time", { datetime: text, title: seconds.format(time) }, told);
}

/** Announce a text to screen readers. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
