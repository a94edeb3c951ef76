// A dialog that shows one file large. The arrow keys show the next image, Esc closes it.

import { downloadFile } from "./download.js";
import { make, size } from "./elements.js";
import { preview } from "./preview.js";

/**
 * Show the file at `at` of `files`, each `{path, bytes, label}`. `more` adds further files to the list, and resolves to
 * whether there were any.
 */
export function view(name, version, files, at, more = async () => false) {
  const title = make("h2", { id: "viewer-title", "aria-live": "polite" });
  const facts = make("p", { class: "quiet" });
  const stage = make("div", { class: "stage" });
  const button = (text, step) => make("button", { type: "button", on: { click: () => move(step) } }, text);
  const [before, after] = [button("Previous", -1), button("Next", 1)];
  const save = make("button", { type: "button", on: { click: () => downloadFile(name, version, files[at]) } }, "Download");
  const close = make("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const steps = make("p", { class: "row" }, before, after, make("span", { class: "spread" }), save, close);
  const dialog = make("dialog", { class: "viewer", "aria-labelledby": "viewer-title" }, make("div", {}, title, facts), stage, steps);
  let isLast = false;
  let fetching = null;

  const show = async () => {
    const file = files[at];
    fetching?.abort();
    const mine = (fetching = new AbortController());
    title.textContent = file.path;
    facts.textContent = [file.label, size(file.bytes), files.length > 1 ? `${at + 1} of ${files.length}` : ""].filter(Boolean).join(" · ");
    before.disabled = at === 0;
    after.disabled = isLast && at === files.length - 1;
    stage.setAttribute("aria-busy", "true");
    try {
      const shown = await preview(name, version, file, mine.signal);
      if (mine.signal.aborted) return;
      stage.replaceChildren(shown);
      stage.removeAttribute("aria-busy");
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  };
  const move = async (step) => {
    if (at + step >= files.length && !isLast) isLast = !(await more());
    if (!dialog.open) return;
    const next = Math.min(files.length - 1, Math.max(0, at + step));
    const isMoved = next !== at;
    at = next;
    if (isMoved) show();
    else after.disabled = at === files.length - 1;
  };
  before.hidden = after.hidden = files.length < 2;
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target.closest(".scrolled") || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(step);
  });
  dialog.addEventListener("close", () => (fetching?.abort(), dialog.remove()));
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  show();
}
