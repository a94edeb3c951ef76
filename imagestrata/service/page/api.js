// Requests to the service, with the token, and its problems.

const TOKEN = "imagestrata token";
const BASE = new URL(".", document.baseURI);

/** The error of a request. Status 0 means that there was no response. */
export class Problem extends Error {
  constructor(title, detail, { status = 0, request = "" } = {}) {
    super(detail);
    Object.assign(this, { title, status, request });
  }
}

export const broken = () => new Problem("No connection", "The service did not respond. Check that it is running and that you are connected.");

export function address(path) {
  return new URL(path, BASE).href;
}

/** The path of a dataset or below it. `query` has further parameters. */
export function place(name, rest = "", version = null, query = {}) {
  const told = new URLSearchParams({ ...(version === null ? {} : { version }), ...query }).toString();
  return `datasets/${encodeURIComponent(name)}${rest}${told && `?${told}`}`;
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

/** Headers, with the token if there is one. */
export function named(headers = {}) {
  const known = token.get();
  return known ? { ...headers, Authorization: `Bearer ${known}` } : headers;
}

/** The problem of a response. The page asks for a token if one is needed. */
export function problemOf(status, text, request) {
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    // A proxy responded.
  }
  const problem = new Problem(found.title ?? `Status ${status}`, found.detail ?? "", {
    status,
    request: found.request_id ?? request ?? "",
  });
  if (status === 401) document.dispatchEvent(new CustomEvent("token-wanted", { detail: problem }));
  return problem;
}

/** A successful response. Throws `Problem`. */
export async function ask(path, { headers = {}, ...options } = {}) {
  let answer;
  try {
    answer = await fetch(address(path), { ...options, headers: named(headers), credentials: "omit" });
  } catch (error) {
    throw error.name === "AbortError" ? error : broken();
  }
  if (!answer.ok) throw problemOf(answer.status, await answer.text(), answer.headers.get("x-request-id"));
  return answer;
}

export async function json(path, options) {
  return (await ask(path, options)).json();
}

/** Create a dataset. */
export async function create(name) {
  await ask("datasets", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name }) });
}

/** Send a body and report progress. Resolves to the request with any status; rejects without a response. */
export function send(method, path, body, headers, { signal, sent = () => {} }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const cancel = () => request.abort();
    const end = (settle, value) => {
      signal.removeEventListener("abort", cancel);
      settle(value);
    };
    request.open(method, address(path));
    for (const [name, value] of Object.entries(named(headers))) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => sent(event.loaded));
    request.addEventListener("load", () => end(resolve, request));
    request.addEventListener("error", () => end(reject, broken()));
    request.addEventListener("abort", () => end(reject, signal.reason ?? broken()));
    signal.addEventListener("abort", cancel);
    if (signal.aborted) return end(reject, signal.reason);
    request.send(body);
  });
}
