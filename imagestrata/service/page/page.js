// The page: the current view, and the dialog for the token.

import { create, json, token } from "./api.js";
import { card, trail } from "./card.js";
import { rescue, settle } from "./dock.js";
import { make, size } from "./elements.js";
import { list } from "./list.js";
import { problem, sentence } from "./words.js";

const main = document.getElementById("main");
const [asking, field, why] = ["asking", "asking-token", "asking-why"].map((id) => document.getElementById(id));
let asked = 0;
let shown = null;
let isClosed = token.get() !== null;

/**
 * Parse the address: `#/` is the list, `#/NAME` a dataset, `#/NAME?version=3` one version. `folder=train/cat/` or
 * `class=cat` is what its files are shown of.
 */
function route() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  const told = new URLSearchParams(query);
  const version = Number(told.get("version"));
  const within = { folder: told.get("folder") ?? "", class: told.get("class") ?? "" };
  return { name, version: version > 0 ? version : null, within };
}

async function show({ moves = true } = {}) {
  const mine = ++asked;
  const { name, version, within } = route();
  main.setAttribute("aria-busy", "true");
  let view;
  try {
    view = await (name ? card(name, version, within) : list());
  } catch (error) {
    view = failed(error, name, version);
  }
  if (mine !== asked) return; // another view was asked for meanwhile
  rescue(main);
  main.replaceChildren(view);
  shown = `${name} ${version}`;
  settle();
  main.removeAttribute("aria-busy");
  document.title = name ? `${name} – datasets` : "Datasets";
  if (moves && !asking.open) view.querySelector("h1").focus({ preventScroll: true });
  if (moves) scrollTo(0, 0);
  document.getElementById("token").hidden = !isClosed;
  told();
}

/** Show a problem instead of a view. A missing dataset can be created. */
function failed(error, name, version) {
  const isMissing = name && version === null && error.status === 404;
  const title = make("h1", { tabindex: "-1" }, isMissing ? "No such dataset" : name || "Datasets");
  const missing = {
    404: !name || isMissing ? `There is no dataset named ${name}.` : `${name} has no version ${version}, or there is no such dataset.`,
  };
  const errors = make("div", {}, problem(error, missing));
  const button = make("button", { type: "button", class: "main" }, "Create it");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await create(name);
      show();
    } catch (refusal) {
      errors.replaceChildren(problem(refusal));
      button.disabled = false;
    }
  });
  return make("div", { class: "view" }, name ? trail() : null, title, errors, isMissing ? make("p", {}, button) : null);
}

/** The state of the service, which needs no token. */
async function told() {
  try {
    const health = await json("health");
    const most = health.quota === null ? "" : ` of ${size(health.quota)}`;
    document.getElementById("used").textContent = `${size(health.used)}${most} used`;
    document.getElementById("release").textContent = `imagestrata ${health.version}`;
  } catch {
    document.getElementById("used").textContent = "";
  }
}

function wanted(error) {
  isClosed = true;
  why.hidden = !error || token.get() === null;
  why.textContent = error ? sentence(error) : "";
  document.getElementById("asking-forget").hidden = token.get() === null;
  if (!asking.open) asking.showModal();
  field.focus();
}

asking.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!field.value.trim()) return;
  token.set(field.value.trim());
  field.value = "";
  asking.close();
  show();
});
document.getElementById("asking-forget").addEventListener("click", () => {
  token.set(null);
  asking.close();
  show();
});
document.getElementById("asking-cancel").addEventListener("click", () => asking.close());
document.getElementById("token").addEventListener("click", () => wanted(null));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("token-wanted", (event) => wanted(event.detail));
document.addEventListener("changed", (event) => {
  if ([event.detail, ""].includes(route().name)) show({ moves: false });
});
// A file that is dropped beside the card must not replace the page.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
window.addEventListener("hashchange", () => {
  const { name, version, within } = route();
  const files = main.querySelector(".browser");
  if (files === null || shown !== `${name} ${version}`) show();
  else files.dispatchEvent(new CustomEvent("within", { detail: within })); // Back, or another folder of this version
});
show({ moves: false });
