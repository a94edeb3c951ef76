// A preview of a file: its first rows as a table, its first lines, or the image.

import { kindOf, picture, text } from "./contents.js";
import { rowsOf } from "./csv.js";
import { count, make } from "./elements.js";
import { problem } from "./words.js";

const [ROWS, COLUMNS, LINES, LETTERS] = [50, 40, 100, 400];

/** An element that shows the beginning of a file `{path, bytes}` when it is loaded. */
export async function preview(name, version, file, signal) {
  try {
    if (kindOf(file.path) === "picture") return await image(await picture(name, version, file, signal), file.path);
    const found = await text(name, version, file, signal);
    if (found.text === "") return make("p", { class: "quiet" }, "The file is empty.");
    return kindOf(file.path) === "table" ? table(found) : lines(found);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return error.status === undefined ? make("p", { class: "quiet" }, error.message) : problem(error);
  }
}

async function image(blob, path) {
  const shown = make("img", { alt: path, class: "picture", src: URL.createObjectURL(blob) });
  try {
    await shown.decode();
  } catch {
    throw new Error("This image cannot be shown. It may be damaged.");
  } finally {
    URL.revokeObjectURL(shown.src);
  }
  return shown;
}

function table(found) {
  const rows = rowsOf(found.text, { isCut: found.isCut, most: ROWS + 2 });
  if (rows.length === 0) return lines(found);
  const [head, ...rest] = rows;
  const body = rest.slice(0, ROWS);
  const width = Math.min(COLUMNS, Math.max(...rows.map((row) => row.length)));
  const cells = (row, tag, given) => Array.from({ length: width }, (_, at) => make(tag, given, cut(row[at] ?? "")));
  const shown = make(
    "table",
    { class: "grid" },
    make("thead", {}, make("tr", {}, cells(head, "th", { scope: "col" }))),
    make("tbody", {}, body.map((row) => make("tr", {}, cells(row, "td", {})))),
  );
  const isShort = found.isCut || rest.length > ROWS;
  const columns = Math.max(...rows.map((row) => row.length));
  const notes = [isShort ? `The first ${count(body.length, "row")}.` : `${count(body.length, "row")}.`];
  if (columns > width) notes.push(`The first ${width} of ${count(columns)} columns.`);
  return make("div", { class: "preview" }, scrolled(shown, "The first rows"), make("p", { class: "quiet" }, notes.join(" ")));
}

function lines(found) {
  const all = found.text.split("\n");
  const shown = all.slice(0, LINES);
  const isShort = found.isCut || all.length > LINES;
  const note = isShort ? make("p", { class: "quiet" }, `The first ${count(shown.length, "line")}.`) : null;
  const block = make("pre", {}, shown.map(cut).join("\n"));
  return make("div", { class: "preview" }, scrolled(block, "The first lines"), note);
}

const cut = (words) => (words.length > LETTERS ? `${words.slice(0, LETTERS)}…` : words);

/** Wide content scrolls in its own frame, with the keyboard, too. */
function scrolled(child, label) {
  return make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": label }, child);
}
