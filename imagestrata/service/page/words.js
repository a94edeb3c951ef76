// Sentences for errors. The message of the service and the request id are in the details.

import { token } from "./api.js";
import { make } from "./elements.js";

const SENTENCES = {
  400: "The service refused this data.",
  403: "Your token permits reading only. Ask for a token with write access, and enter it with the Token button.",
  404: "This does not exist. It may have been deleted, or its name is different.",
  409: "This conflicts with a change by someone else. Check the dataset, then try again.",
  411: "The service needs the size of the data.",
  412: "Someone changed this dataset in the meantime. Check it, then try again.",
  413: "This is larger than the service allows.",
  415: "The service does not accept data of this type.",
  421: "The service is not available at this address. Use the address that its operator gave you.",
  429: "The service is busy. Try again in a moment.",
  460: "The data was damaged in transit.",
  507: "There is no space left. Delete old versions, or ask the operator of the service for more space.",
};
const [LOST, FAILED] = [
  "The service does not respond. Check that it is running and that you are connected.",
  "Something went wrong in the service. Try again. If it happens again, give the request id to its operator.",
];
// For these, the message of the service says what to change.
const OPEN = [400, 413, 415, 507];

/** Whether the version exists but cannot be read. */
export const isUnreadable = (error) => error.title === "A version cannot be read";

/** One sentence about a problem. `others` are better sentences for this place, by status. */
export function sentence(error, others = {}) {
  const status = error.status ?? 0;
  if (status === 401) return token.get() ? "This token is unknown or was revoked." : "This service needs a token.";
  if (status === 0) return error.title === "No connection" ? LOST : [error.title, error.message].filter(Boolean).join(". ");
  if (isUnreadable(error)) return "The service cannot read this version, perhaps because a newer release wrote it. Restore an older version, delete this one, or ask the operator to upgrade the service.";
  if (status === 422) return `The service refused this. ${error.message}`; // its message names what is wrong, such as a name
  return others[status] ?? SENTENCES[status] ?? (status >= 500 ? FAILED : error.message);
}

/** Whether the same request may succeed later. */
export function mayPass(error) {
  const status = error.status ?? 0;
  return [0, 401, 403, 409, 412, 429, 460].includes(status) || status >= 500;
}

/** The sentence and its details. */
export function told(error, others) {
  const parts = [make("span", {}, sentence(error, others))];
  if (error.status) {
    const id = error.request ? make("p", {}, "Request id: ", make("code", {}, error.request)) : null;
    const text = make("p", {}, error.message || error.title);
    parts.push(make("details", { open: OPEN.includes(error.status) }, make("summary", {}, "Details"), text, id));
  }
  return parts;
}

export function problem(error, others) {
  return make("div", { class: "problem", role: "alert" }, told(error, others));
}
