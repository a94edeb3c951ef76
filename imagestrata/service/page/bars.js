// Bars: the number of images of each class.

import { count, make } from "./elements.js";

const MOST = 30;
const [SHORT, TAIL] = [12, 8];
const order = new Intl.Collator("en", { numeric: true });

/** Bars of counts by name, the largest first. After thirty, a button shows the others. */
export function bars(counts, label) {
  const sorted = Object.entries(counts).sort(([a, m], [b, n]) => n - m || order.compare(a, b));
  const longest = Math.max(1, ...sorted.map(([, number]) => number));
  const list = make("ul", { class: "bars", "aria-label": label });
  const add = (rows) => list.append(...rows.map(([name, number]) => bar(name, number, number / longest)));
  add(sorted.slice(0, MOST));
  const others = sorted.slice(MOST);
  if (others.length === 0) return list;
  const more = make("button", { type: "button", class: "plain" }, `${count(others.length)} more`);
  more.addEventListener("click", () => {
    add(others);
    more.remove();
  });
  return make("div", {}, list, more);
}

function bar(name, number, share) {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return make(
    "li",
    {},
    label(name),
    make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "count" }, count(number)),
  );
}

/** A name, shortened in the middle, because many names begin alike. Screen readers and the tooltip have all of it. */
function label(name) {
  const letters = [...name];
  if (letters.length <= SHORT) return make("span", { class: "name", title: name }, name);
  const part = (style, ...range) => make("span", { class: style, "aria-hidden": "true" }, letters.slice(...range).join(""));
  const whole = make("span", { class: "unseen" }, name);
  return make("span", { class: "name cut", title: name }, whole, part("start", 0, -TAIL), part("end", -TAIL));
}

/** A bar for each split as a share of `images`, with its classes in the details. */
export function splitBars(splits, images) {
  const all = images || 1;
  return splits.map((split) => {
    const head = bar(split.name, split.images, split.images / all);
    head.lastChild.append(make("span", { class: "quiet" }, ` ${Math.round((100 * split.images) / all)} %`));
    const summary = make("summary", { class: "bars" }, ...head.childNodes);
    return make("details", { class: "split" }, summary, bars(split.classes ?? {}, `Images of each class in ${split.name}`));
  });
}
