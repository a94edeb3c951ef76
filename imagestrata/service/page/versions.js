// The versions of a dataset, with links and actions.

import { ask, json, place } from "./api.js";
import { confirmed } from "./confirm.js";
import { downloadLink } from "./download.js";
import { count, exact, make, say, size } from "./elements.js";
import { problem } from "./words.js";

const KEPT = "The other versions cannot be deleted while a version cannot be read, because they may share its bytes. Delete that version first.";

const changed = (name) => document.dispatchEvent(new CustomEvent("changed", { detail: name }));

/** Headers that refuse a request if another version is the newest; none if the newest is unreadable. */
function unchanged({ versions, unreadable }) {
  if (unreadable.length && newestOf({ versions, unreadable }) !== versions[0]?.version) return {};
  return versions.length ? { "If-Match": `"${versions[0].sha256}"` } : { "If-None-Match": "*" };
}

/** The number of the newest version, which may be unreadable. */
export function newestOf({ versions, unreadable }) {
  return Math.max(0, ...versions.map((one) => one.version), ...unreadable);
}

/** A table of all versions. `shown` is the version on the page. */
export function versions(name, all, shown = null) {
  const errors = make("div");
  const heads = ["Version", "Uploaded", "Size", "Files", "SHA-256", "By", ""];
  const head = (text) => make("th", { scope: "col", class: ["Size", "Files"].includes(text) ? "number" : null }, text || make("span", { class: "unseen" }, "Actions"));
  const row = (one) =>
    make(
      "tr",
      one.version === shown?.version ? { "aria-current": "true" } : {},
      make("th", { scope: "row" }, make("a", { href: `#/${name}?version=${one.version}` }, `v${one.version}`)),
      make("td", { "data-head": "Uploaded" }, exact(one.created)),
      make("td", { "data-head": "Size", class: "number" }, size(one.bytes)),
      make("td", { "data-head": "Files", class: "number" }, count(one.files)),
      make("td", { "data-head": "SHA-256" }, make("code", { title: one.sha256 }, one.sha256.slice(0, 12))),
      make("td", { "data-head": "By" }, one.by ?? "–"),
      make("td", { class: "actions" }, actions(name, one, all, errors)),
    );
  const closed = (number) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, `v${number}`),
      make("td", { colspan: "5" }, make("span", { class: "chip none" }, "cannot be read")),
      make("td", { class: "actions" }, deleteButton(name, { version: number }, all)),
    );
  const rows = [...all.versions.map((one) => [one.version, row(one)]), ...all.unreadable.map((number) => [number, closed(number)])];
  rows.sort(([one], [other]) => other - one);
  const table = make("table", {}, make("thead", {}, make("tr", {}, heads.map(head))), make("tbody", {}, rows.map(([, made]) => made)));
  return make("section", { "aria-labelledby": "versions-title" }, make("h2", { id: "versions-title" }, "Versions"), errors, table);
}

function actions(name, one, all, errors) {
  const parts = [downloadLink(name, one, "Download"), deleteButton(name, one, all)];
  if (one.version !== newestOf(all)) {
    const again = make("button", { type: "button", class: "plain", "aria-label": `Restore version ${one.version}` }, "Restore");
    again.addEventListener("click", () => restore(name, one, all, again, errors));
    parts.splice(1, 0, again);
  }
  return parts;
}

function deleteButton(name, one, all) {
  const button = make("button", { type: "button", class: "plain", "aria-label": `Delete version ${one.version}` }, "Delete");
  button.addEventListener("click", () => removal(name, one, all));
  return button;
}

/** Make a version the newest again, without confirmation, because nothing is deleted. */
async function restore(name, one, all, button, errors) {
  button.disabled = true;
  errors.replaceChildren();
  try {
    const made = await json(place(name, "/restore", one.version), { method: "POST", headers: unchanged(all) });
    const isSame = made.version === all.versions[0].version;
    say(isSame ? `Version ${made.version} has the same bytes already` : `Version ${one.version} is the newest again, as version ${made.version}`);
    location.hash = `#/${name}`;
    changed(name);
  } catch (error) {
    errors.replaceChildren(problem(error));
    button.disabled = false;
  }
}

async function removal(name, one, all) {
  const others = [...all.versions.map((other) => other.version), ...all.unreadable].filter((number) => number !== one.version);
  const then =
    others.length === 0
      ? "The dataset stays and is empty."
      : one.version === newestOf(all)
        ? `Version ${Math.max(...others)} becomes the newest.`
        : `The other ${others.length === 1 ? "version stays" : `${others.length} versions stay`}.`;
  const what = one.bytes === undefined ? "It" : `${one.filename}, ${size(one.bytes)} in ${count(one.files, "file")},`;
  const isDone = await confirmed({
    title: `Delete version ${one.version} of ${name}?`,
    text: `${what} cannot be restored. ${then}`,
    button: `Delete version ${one.version}`,
    sentences: all.unreadable.length ? { 409: KEPT } : {},
    act: () => ask(place(name, "", one.version), { method: "DELETE" }),
  });
  if (!isDone) return;
  say(`Version ${one.version} deleted`);
  location.hash = `#/${name}`;
  changed(name);
}

/** The button that deletes the whole dataset. */
export function deletion(name, all) {
  const button = make("button", { type: "button", class: "danger" }, "Delete this dataset");
  button.addEventListener("click", async () => {
    const total = all.versions.reduce((sum, one) => sum + one.bytes, 0);
    const number = all.versions.length + all.unreadable.length;
    const room = all.unreadable.length ? "" : `, ${size(total)},`;
    const what = number ? `${count(number, "version")}${room} cannot be restored.` : "It is empty.";
    const act = () => ask(place(name), { method: "DELETE", headers: unchanged(all) });
    if (!(await confirmed({ title: `Delete ${name}?`, text: what, button: "Delete dataset", word: name, act }))) return;
    say(`${name} deleted`);
    location.hash = "#/";
  });
  return make("p", { class: "row end" }, button);
}
