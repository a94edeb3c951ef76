// A tar of files as a Blob, which refers to the bytes of files without loading them.

const BLOCK = 512;
const MOST_OCTAL = 8 ** 11 - 1;
const text = new TextEncoder();

/** A tar of `{path, file}`. Equal files give equal tars. Long names and large sizes are in PAX headers. */
export function tarOf(files) {
  const parts = [];
  for (const { path, file } of [...files].sort((one, other) => (one.path < other.path ? -1 : 1))) {
    const name = text.encode(path);
    const records = {};
    if (name.length > 100 || name.length !== path.length) records.path = path;
    if (file.size > MOST_OCTAL) records.size = file.size;
    if (Object.keys(records).length) {
      const told = paxOf(records);
      parts.push(header(text.encode("PaxHeader"), told.length, "x"), told, padding(told.length));
    }
    parts.push(header(name, file.size, "0"), file, padding(file.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

function header(name, size, kind) {
  const block = new Uint8Array(BLOCK);
  const put = (place, value) => block.set(typeof value === "string" ? text.encode(value) : value, place);
  put(0, name.subarray(0, 100));
  put(100, "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, `${Math.min(size, MOST_OCTAL).toString(8).padStart(11, "0")}\0`);
  put(136, "00000000000\0"); // no times: they differ where the bytes do not
  put(148, "        ");
  put(156, kind);
  put(257, "ustar\0" + "00");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, "0")}\0 `);
  return block;
}

function padding(size) {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

/** A record "LENGTH key=value\n". The length includes its own digits. */
function paxOf(records) {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = text.encode(` ${key}=${value}\n`).length;
    let length = rest + String(rest).length;
    length = rest + String(length).length;
    return `${length} ${key}=${value}\n`;
  });
  return text.encode(lines.join(""));
}
