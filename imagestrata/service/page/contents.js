// The content of single files: what can be shown, and how it is fetched.

import { ask, place } from "./api.js";
import { size } from "./elements.js";

// Types that browsers display. The type never comes from the file itself: images of these types cannot run scripts.
const PICTURES = {
  jpg: "image/jpeg", jpeg: "image/jpeg", png: "image/png", gif: "image/gif", webp: "image/webp", bmp: "image/bmp",
};
const TABLES = ["csv", "tsv"];
const TEXTS = [
  "txt", "md", "rst", "log", "json", "jsonl", "ndjson", "yaml", "yml", "toml", "ini", "cfg", "xml", "html", "py", "js", "sh", "sql",
];
const MOST_PICTURE = 2 ** 24;
const MOST_TEXT = 2 ** 16;

const ending = (path) => path.slice(path.lastIndexOf(".") + 1).toLowerCase();

/** "picture", "table" or "text"; null for other files. */
export function kindOf(path) {
  const found = ending(path);
  if (found in PICTURES || found === "tif" || found === "tiff") return "picture";
  if (TABLES.includes(found)) return "table";
  return TEXTS.includes(found) ? "text" : null;
}

/** Whether browsers can show an image, and it is not too large. */
export function isDrawn({ path, bytes }) {
  return ending(path) in PICTURES && bytes <= MOST_PICTURE;
}

/** The name of a kind of file. */
export function typeOf(path) {
  const found = ending(path);
  const kind = { picture: "Picture", table: "Table", text: "Text" }[kindOf(path)] ?? "File";
  return found === path.toLowerCase() ? kind : `${kind} (${found.toUpperCase()})`;
}

export function filePath(name, path, version) {
  return place(name, `/files/${path.split("/").map(encodeURIComponent).join("/")}`, version);
}

/** The first bytes of a file, up to a limit. */
async function first(name, version, { path, bytes }, most, signal) {
  if (bytes === 0) return new Blob([]);
  const headers = { Range: `bytes=0-${Math.min(bytes, most) - 1}` };
  return (await ask(filePath(name, path, version), { headers, signal })).blob();
}

/** An image as a Blob. Throws an Error if it cannot be shown. */
export async function picture(name, version, file, signal) {
  const type = PICTURES[ending(file.path)];
  if (!type) throw new Error("Browsers cannot show TIFF images. Download it to view it.");
  if (file.bytes > MOST_PICTURE) throw new Error(`Images of up to ${size(MOST_PICTURE)} are shown here. Download this one to view it.`);
  return new Blob([await first(name, version, file, MOST_PICTURE, signal)], { type });
}

/** The beginning of a text: `{text, isCut}`. Throws an Error if it is not UTF-8. */
export async function text(name, version, file, signal) {
  const blob = await first(name, version, file, MOST_TEXT, signal);
  const isCut = file.bytes > MOST_TEXT;
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const found = decoder.decode(await blob.arrayBuffer(), { stream: isCut }); // a letter may be cut in two
    if (found.includes("\0")) throw new TypeError();
    return { text: found, isCut };
  } catch {
    throw new Error("This is not UTF-8 text. Download it to view it.");
  }
}
