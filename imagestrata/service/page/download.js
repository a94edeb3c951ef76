// Downloads: plain links without a token; with a token, a stream to a file that users choose.

import { address, ask, place, Problem, token } from "./api.js";
import { filePath } from "./contents.js";
import { track } from "./dock.js";
import { make, size } from "./elements.js";

const MOST_HELD = 2 ** 30;
const SLICE = 2 ** 24;

export function downloadLink(name, version, text, style = "") {
  const given = { href: address(place(name, "", version.version)), download: version.filename, class: style };
  const link = make("a", { ...given, "aria-label": `Download version ${version.version} of ${name}` }, text);
  link.addEventListener("click", (event) => {
    if (token.get() === null) return;
    event.preventDefault();
    const what = { path: place(name, "", version.version), filename: version.filename, bytes: version.bytes };
    track(`${version.filename} from ${name}`, version.bytes, (row) => save(what, row));
  });
  return link;
}

/** Download one file of a folder. */
export function downloadFile(name, version, { path, bytes }) {
  const what = { path: filePath(name, path, version), filename: path.split("/").pop(), bytes };
  if (token.get() === null) make("a", { href: address(what.path), download: what.filename }).click();
  else track(`${what.filename} from ${name}`, bytes, (row) => save(what, row));
}

async function save(version, { signal, sent }) {
  // First, because browsers allow it only during a click.
  const file = await window.showSaveFilePicker?.({ suggestedName: version.filename });
  if (!file && version.bytes > MOST_HELD) {
    const why = `It would need ${size(version.bytes)} of memory. Use a command from “Use it elsewhere”.`;
    throw new Problem("This file is too large for this browser", why);
  }
  const open = await file?.createWritable();
  const held = [];
  let come = 0;
  try {
    for await (const chunk of chunks(version, signal)) {
      if (open) await open.write(chunk);
      else held.push(chunk);
      sent((come += chunk.byteLength));
    }
  } catch (error) {
    await open?.abort();
    throw error;
  }
  if (open) await open.close();
  else offer(new Blob(held), version.filename);
  return `${version.filename} saved`;
}

/** The bytes in small ranges, which the service sends itself: a page cannot follow redirects to a bucket. */
async function* chunks({ path, bytes }, signal) {
  for (let at = 0; at < bytes; at += SLICE) {
    const headers = { Range: `bytes=${at}-${Math.min(bytes, at + SLICE) - 1}` };
    const reader = (await ask(path, { headers, signal })).body.getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  }
}

function offer(blob, filename) {
  const link = make("a", { href: URL.createObjectURL(blob), download: filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
