// What went wrong, in sentences for people. The service's own words and the request's id are in the details.

import { token } from "./api.js";
import { make } from "./elements.js";

const SENTENCES = {
  400: "The service refused this data.",
  403: "Your token may only read. Ask for one that may write, and enter it with the Token button.",
  404: "This is not there. It may have been deleted, or its name is different.",
  409: "This does not fit what is there by now. Look at the dataset again, then repeat it.",
  411: "The service needs to know how large the data is.",
  412: "Somebody changed this dataset in the meantime. Look at it again, then repeat it.",
  413: "This is too large for the service.",
  415: "The service does not take data of this type.",
  421: "The service does not answer under this address. Use the address that its operator gave you.",
  422: "The service does not understand this request.",
  429: "The service is busy. Try again in a moment.",
  460: "The data was damaged on its way.",
  507: "There is no room left. Delete old versions, or ask the operator of the service for more room.",
};
const [LOST, FAILED] = [
  "The service does not answer. Check that it runs and that you are connected.",
  "Something went wrong in the service. Try again; if it happens again, tell its operator the request id.",
];
// Of these the service's own words say what to change.
const OPEN = [400, 413, 415, 422, 507];

/** Whether the service has the version, but cannot read it. */
export const isUnreadable = (error) => error.title === "A version cannot be read";

/** One plain sentence about a problem; `others` are sentences by status that say it better here. */
export function sentence(error, others = {}) {
  const status = error.status ?? 0;
  if (status === 401) return token.get() ? "The service does not know this token, or it was revoked." : "This service needs a token.";
  if (status === 0) return error.title === "No connection" ? LOST : [error.title, error.message].filter(Boolean).join(". ");
  if (isUnreadable(error)) return "The service cannot read this version, perhaps because a newer release wrote it. Restore an older version, delete this one, or ask the operator to upgrade the service.";
  return others[status] ?? SENTENCES[status] ?? (status >= 500 ? FAILED : error.message);
}

/** Whether the same request may succeed another time. */
export function mayPass(error) {
  const status = error.status ?? 0;
  return [0, 401, 403, 409, 412, 429, 460].includes(status) || status >= 500;
}

/** The sentence, and the details behind it. */
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
