// The drop zone: upload by drag and drop, or with the buttons for a file or folder.

import { dropped, picked } from "./choice.js";
import { track } from "./dock.js";
import { count, make } from "./elements.js";
import { tarOf } from "./tar.js";
import { upload } from "./upload.js";
import { problem } from "./words.js";

const [FILE, TAR] = ["application/octet-stream", "application/x-tar"];
const held = new Map();

/** Keep dropped data until the zone of its dataset is shown. */
export function hold(name, found) {
  held.set(name, found);
}

/** A drop zone for a dataset. Data can be dropped anywhere on `around`. */
export function dropZone(name, around, isEmpty) {
  const answers = make("div", { "aria-live": "polite" });
  const take = async (found) => {
    answers.replaceChildren();
    try {
      offered(name, await found, answers);
    } catch (error) {
      answers.replaceChildren(problem(error));
    }
  };
  watch(around, take);
  if (held.has(name)) {
    const found = held.get(name);
    held.delete(name);
    setTimeout(() => take(found)); // when the zone is on the page
  }
  const button = (text, given) => {
    const field = make("input", { type: "file", class: "unseen", tabindex: "-1", "aria-label": text, ...given });
    field.addEventListener("change", () => {
      if (field.files.length) take(picked(field.files));
      field.value = "";
    });
    return [make("button", { type: "button", on: { click: () => field.click() } }, text), field];
  };
  return make(
    "section",
    { class: "drop", "aria-labelledby": "drop-title", "data-dataset": name },
    make("h2", { id: "drop-title" }, isEmpty ? "Upload the first version" : "Upload a new version"),
    make("p", { class: "quiet" }, `Drop a file, a folder or a tar here.${isEmpty ? "" : " Older versions stay as they are."}`),
    make("p", { class: "row middle" }, button("Choose a file", {}), button("Choose a folder", { webkitdirectory: true })),
    answers,
    make("div", { class: "failures" }),
  );
}

/** Accept data dropped anywhere on `around`. */
export function watch(around, take) {
  let depth = 0;
  const isOurs = (event) => event.dataTransfer?.types.includes("Files");
  const shown = (change) => {
    depth = Math.max(0, depth + change);
    around.classList.toggle("dragged", depth > 0);
  };
  const listeners = {
    dragenter: () => shown(1),
    dragleave: () => shown(-1),
    dragover: (event) => (event.dataTransfer.dropEffect = "copy"),
    drop: (event) => {
      shown(-depth);
      take(dropped(event.dataTransfer));
    },
  };
  for (const [kind, listener] of Object.entries(listeners)) {
    around.addEventListener(kind, (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      listener(event);
    });
  }
}

/** Upload dropped or chosen data. Users decide whether a tar is a folder. */
function offered(name, { files, isFolder, label }, answers) {
  if (files.length === 0) throw new Error(`There are no files in ${label}.`);
  if (isFolder) return begin(name, tarOf(files), { kind: TAR, label: `${label} (${count(files.length, "file")})` });
  const [{ file }] = files;
  const asFile = () => begin(name, file, { kind: FILE, filename: file.name, label });
  if (!file.name.toLowerCase().endsWith(".tar")) return asFile();
  const answer = (text, style, chosen) => {
    const listener = () => (answers.replaceChildren(), chosen());
    return make("button", { type: "button", class: style, on: { click: listener } }, text);
  };
  const asFolder = answer("As a folder", "main", () => begin(name, file, { kind: TAR, label }));
  answers.replaceChildren(
    make("p", {}, make("strong", {}, label), " is a tar. As a folder, its files, images and classes are shown."),
    make("p", { class: "row middle" }, asFolder, answer("As one file", "", asFile)),
  );
  asFolder.focus();
}

function begin(name, body, { kind, filename = "", label }) {
  const send = async (row) => {
    const version = await upload(name, body, { kind, filename, ...row });
    document.dispatchEvent(new CustomEvent("changed", { detail: name }));
    return `${label} is version ${version.version} of ${name}`;
  };
  track(`${label} to ${name}`, body.size, send, { dataset: name });
}
