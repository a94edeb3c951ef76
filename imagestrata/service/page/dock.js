// The dock: uploads and downloads with their progress, on all views.

import { make, say, size } from "./elements.js";
import { mayPass, sentence, told } from "./words.js";

const LASTS = 8000; // milliseconds, of what has succeeded
const dock = document.getElementById("dock");
let under = 0;

window.addEventListener("beforeunload", (event) => {
  if (under > 0) event.preventDefault();
});

/**
 * Show work: `begin({signal, sent, waits, shows})` does it and resolves to its final message. Rows of finished work
 * disappear. Failures stay, beside the drop zone of their `dataset` if it is on the page.
 */
export async function track(label, total, begin, { dataset = "" } = {}) {
  const given = new AbortController();
  const bar = make("progress", { max: Math.max(1, total), value: 0, "aria-label": label });
  const state = make("span", { class: "state quiet" }, "0 %");
  const error = make("div", { class: "problem", role: "alert", hidden: true });
  const cancel = make("button", { type: "button", class: "plain", on: { click: () => given.abort() } }, "Cancel");
  const row = make(
    "section",
    { class: "work", "aria-label": label, "data-of": dataset },
    make("p", { class: "row" }, make("strong", {}, label), state, cancel),
    bar,
    error,
  );
  dock.append(row);
  const ended = (text, ...buttons) => {
    state.textContent = text;
    const dismiss = make("button", { type: "button", class: "plain", on: { click: () => row.remove() } }, "Dismiss");
    const hasFocus = document.activeElement === cancel;
    cancel.replaceWith(...buttons, dismiss);
    if (hasFocus) dismiss.focus();
    bar.hidden = true;
  };
  const again = () => {
    row.remove();
    track(label, total, begin, { dataset });
  };
  under += 1;
  try {
    const text = await begin({ signal: given.signal, ...progress(label, total, bar, state) });
    bar.value = bar.max;
    ended("done");
    row.classList.add("done");
    vanish(row);
    say(text);
  } catch (problem) {
    if (problem.name === "AbortError") {
      ended("cancelled");
      row.classList.add("done");
      vanish(row);
      say(`${label}: cancelled`);
    } else {
      const retry = make("button", { type: "button", on: { click: again } }, "Try again");
      ended("failed", ...(mayPass(problem) ? [retry] : []));
      row.classList.add("failed");
      error.replaceChildren(...told(problem));
      error.hidden = false;
      settle();
      say(`${label}: ${sentence(problem)}`);
    }
  } finally {
    under -= 1;
  }
}

/** Remove a row after some seconds, but not while it has the focus or the mouse. */
function vanish(row) {
  setTimeout(() => (row.matches(":hover, :focus-within") ? vanish(row) : row.remove()), LASTS);
}

/** Move failures to the drop zone of their dataset, or back to the dock if it is not shown. */
export function settle() {
  const zone = document.querySelector("main .drop");
  for (const row of document.querySelectorAll(".work.failed")) {
    const isHere = zone !== null && row.dataset.of !== "" && row.dataset.of === zone.dataset.dataset;
    const home = isHere ? zone.querySelector(".failures") : dock;
    if (row.parentElement !== home) home.append(row);
  }
}

/** Move failures out of a view before it is removed. */
export function rescue(view) {
  dock.append(...view.querySelectorAll(".work.failed"));
}

function progress(label, total, bar, state) {
  const began = performance.now();
  let quarter = 0;
  const sent = (bytes) => {
    const done = Math.min(bytes, total);
    const rate = done / ((performance.now() - began) / 1000 || 1);
    const left = rate > 0 ? (total - done) / rate : 0;
    bar.value = done;
    state.textContent = done < total ? `${size(done)} of ${size(total)}, ${lasting(left)} left` : `${size(total)}, checking`;
    // Often enough for screen readers.
    const reached = Math.floor((4 * done) / (total || 1));
    if (reached > quarter) say(`${label}: ${25 * (quarter = reached)} %`);
  };
  const waits = (seconds) => {
    state.textContent = `connection lost, next try in ${seconds} s`;
    say(`${label}: connection lost`);
  };
  return { sent, waits };
}

function lasting(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
