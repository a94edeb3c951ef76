// Elements, and how sizes, counts and times read on the page.

const counts = new Intl.NumberFormat("en");
const sizes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const days = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const spans = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];

/** An element: `on` holds its listeners, what else is given its attributes; children that are null are left out. */
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

/** A time, told as how long ago it was. */
export function when(text) {
  const time = new Date(text);
  const seconds = (time - Date.now()) / 1000;
  const [unit, length] = UNITS.find(([, least]) => Math.abs(seconds) >= least) ?? ["minute", 60];
  const told = Math.abs(seconds) < 60 ? "just now" : spans.format(Math.round(seconds / length), unit);
  return make("time", { datetime: text, title: days.format(time) }, told);
}

/** What went wrong, as people read it. */
export function told(error) {
  const request = error.request ? make("span", { class: "request" }, `request ${error.request}`) : null;
  return [make("strong", {}, error.title ?? "Something went wrong"), " ", error.message, " ", request].filter(Boolean);
}

export function problem(error) {
  return make("p", { class: "problem", role: "alert" }, told(error));
}

/** Tell those who listen rather than look. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
