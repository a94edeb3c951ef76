// Uploads: small ones in one request, large ones in slices by tus 1.0.0, which resume after a lost connection.

import { ask, json, place, Problem, problemOf, send } from "./api.js";

const LARGE = 64 * 2 ** 20;
const SLICE = 16 * 2 ** 20;
const TRIES = 6;
const TUS = { "Tus-Resumable": "1.0.0" };

/**
 * Upload a Blob as `kind` and return the published version. `sent` gets the bytes sent, `waits` the seconds until a
 * retry. Throws `Problem`, or the reason of the signal.
 */
export async function upload(name, body, { kind, filename, signal, sent, waits }) {
  if (body.size > LARGE) return inSlices(name, body, { kind, filename, signal, sent, waits });
  const headers = { "Content-Type": kind };
  if (filename) headers["Content-Disposition"] = `attachment; filename*=UTF-8''${encoded(filename)}`;
  const answer = await send("PUT", place(name), body, headers, { signal, sent });
  return published(answer);
}

function published(answer) {
  if (answer.status >= 300) throw problemOf(answer.status, answer.responseText, answer.getResponseHeader("x-request-id"));
  return JSON.parse(answer.responseText);
}

async function inSlices(name, body, { kind, filename, signal, sent, waits }) {
  const metadata = Object.entries({ filetype: kind, ...(filename ? { filename: filename.normalize("NFC") } : {}) });
  const headers = {
    ...TUS,
    "Upload-Length": String(body.size),
    "Upload-Metadata": metadata.map(([key, value]) => `${key} ${base64(value)}`).join(),
  };
  const begun = await ask(place(name, "/uploads"), { method: "POST", headers, signal });
  const path = place(name, `/uploads/${begun.headers.get("location").split("/").pop()}`);
  try {
    return await slices(name, path, body, { signal, sent, waits });
  } catch (error) {
    forget(path);
    throw error;
  }
}

/** Cancel an upload. If that fails, the service removes it after some days. */
async function forget(path) {
  for (let tried = 0; tried < TRIES; tried += 1) {
    try {
      await ask(path, { method: "DELETE", headers: TUS });
      return;
    } catch (error) {
      // The service may still be reading the slice that was lost.
      if (error.status !== 409) return;
      await pause(1, new AbortController().signal);
    }
  }
}

async function slices(name, path, body, { signal, sent, waits }) {
  let [offset, failed] = [0, 0];
  for (;;) {
    const told = { ...TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(offset) };
    const slice = body.slice(offset, offset + SLICE);
    try {
      const answer = await send("PATCH", path, slice, told, { signal, sent: (bytes) => sent(offset + bytes) });
      if (answer.status !== 204) throw problemOf(answer.status, answer.responseText);
      [offset, failed] = [Number(answer.getResponseHeader("upload-offset")), 0];
      if (offset === body.size) return await version(name, answer.getResponseHeader("dataset-version"), signal);
    } catch (error) {
      signal.throwIfAborted();
      // No response, a conflict with a request that the service still reads, or a proxy: try again.
      const isPassing = error.status === 0 || error.status === 409 || [502, 503, 504].includes(error.status);
      if (!isPassing || ++failed > TRIES) throw error;
      const found = await reached(path, { signal, waits, failed, offset });
      if (found.version) return version(name, found.version, signal);
      if (found.offset > offset) failed = 0;
      offset = found.offset;
      sent(offset);
    }
  }
}

/** The state of an upload: its offset, and its version if only the last response was lost. */
async function reached(path, { signal, waits, failed, offset }) {
  const seconds = Math.min(30, 2 ** (failed - 1));
  waits(seconds);
  await pause(seconds, signal);
  try {
    const { headers } = await ask(path, { method: "HEAD", headers: TUS, signal });
    return { offset: Number(headers.get("upload-offset")), version: headers.get("dataset-version") };
  } catch (error) {
    signal.throwIfAborted();
    if (error.status === 0) return { offset };
    if (error.status !== 404) throw error;
    throw new Problem("The upload no longer exists", "The service has removed it. Upload the data again.");
  }
}

/** The description of a version by the service. */
async function version(name, number, signal) {
  const { versions } = await json(place(name, "/card", number), { signal });
  return versions.find((one) => one.version === Number(number));
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

function encoded(filename) {
  const escape = (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(filename.normalize("NFC")).replace(/['()*]/g, escape);
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
