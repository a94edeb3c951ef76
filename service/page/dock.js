// The dock: what is on its way, with its progress, while people look elsewhere on the page.

import { make, say, size, told } from "./elements.js";

const dock = document.getElementById("dock");
let under = 0;

window.addEventListener("beforeunload", (event) => {
  if (under > 0) event.preventDefault();
});

/** Show work: `begin({signal, sent, waits, shows})` does it and resolves to what is said of it at its end. */
export async function track(label, total, begin) {
  const given = new AbortController();
  const bar = make("progress", { max: Math.max(1, total), value: 0, "aria-label": label });
  const state = make("span", { class: "state quiet" }, "0 %");
  const error = make("p", { class: "problem", role: "alert", hidden: true });
  const cancel = make("button", { type: "button", class: "plain", on: { click: () => given.abort() } }, "Cancel");
  const row = make(
    "section",
    { class: "work", "aria-label": label },
    make("p", { class: "row" }, make("strong", {}, label), state, cancel),
    bar,
    error,
  );
  dock.append(row);
  const ended = (text, hides) => {
    state.textContent = text;
    cancel.replaceWith(make("button", { type: "button", class: "plain", on: { click: () => row.remove() } }, "Dismiss"));
    bar.hidden = hides;
  };
  under += 1;
  try {
    const text = await begin({ signal: given.signal, ...progress(label, total, bar, state) });
    bar.value = bar.max;
    ended(text, true);
    row.classList.add("done");
    say(text);
  } catch (problem) {
    if (problem.name === "AbortError") {
      ended("cancelled", true);
      say(`${label}: cancelled`);
    } else {
      ended("failed", true);
      error.replaceChildren(...told(problem));
      error.hidden = false;
    }
  } finally {
    under -= 1;
  }
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
    // Often enough for ears.
    const reached = Math.floor((4 * done) / (total || 1));
    if (reached > quarter) say(`${label}: ${25 * (quarter = reached)} %`);
  };
  const waits = (seconds) => {
    state.textContent = `the connection broke off; goes on in ${seconds} s`;
    say(`${label}: the connection broke off`);
  };
  return { sent, waits };
}

function lasting(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
