// Downloads: plain links where the service is open; with a token, a stream into a file that people choose.

import { address, ask, place, Problem, token } from "./api.js";
import { track } from "./dock.js";
import { make, size } from "./elements.js";

const MOST_HELD = 2 ** 30;

export function downloadLink(name, version, text, style = "") {
  const given = { href: address(place(name, "", version.version)), download: version.filename, class: style };
  const link = make("a", { ...given, "aria-label": `Download version ${version.version} of ${name}` }, text);
  link.addEventListener("click", (event) => {
    if (token.get() === null) return;
    event.preventDefault();
    track(`${version.filename} from ${name}`, version.bytes, (row) => save(name, version, row));
  });
  return link;
}

async function save(name, version, { signal, sent }) {
  // First, as browsers open it only while a click lasts.
  const file = await window.showSaveFilePicker?.({ suggestedName: version.filename });
  if (!file && version.bytes > MOST_HELD) {
    const most = `Wanted at most ${size(MOST_HELD)} for this browser, which would hold all of it in memory.`;
    throw new Problem("Too large for this browser", `${most} Found: ${size(version.bytes)}. The card has a command.`);
  }
  const answer = await ask(place(name, "", version.version), { signal });
  let come = 0;
  const counted = answer.body.pipeThrough(
    new TransformStream({
      transform(chunk, out) {
        sent((come += chunk.byteLength));
        out.enqueue(chunk);
      },
    }),
  );
  if (file) await counted.pipeTo(await file.createWritable(), { signal });
  else offer(await new Response(counted).blob(), version.filename);
  return `${version.filename} is saved`;
}

function offer(blob, filename) {
  const link = make("a", { href: URL.createObjectURL(blob), download: filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
