// The description of a dataset: plain text that users can edit.

import { ask, place } from "./api.js";
import { count, make, say } from "./elements.js";
import { problem } from "./words.js";

const MOST = 10_000;
const LONG = 500;

/** The description of a dataset, with a button to change it. */
export function description(name, text) {
  const part = make("div", { class: "description" });
  let now = text;
  const show = (moves) => {
    const button = make("button", { type: "button", class: "plain" }, now ? "Edit description" : "Add a description");
    button.addEventListener("click", edit);
    part.replaceChildren(...(now ? reading(now) : []), button);
    if (moves) button.focus();
  };
  const edit = () => {
    const field = make("textarea", { id: "description", rows: "6" });
    const errors = make("div");
    const save = make("button", { type: "submit", class: "main" }, "Save");
    const cancel = make("button", { type: "button", on: { click: () => show(true) } }, "Cancel");
    const form = make(
      "form",
      {},
      make("label", { for: "description" }, "Description"),
      field,
      make("p", { class: "quiet hint" }, "Plain text, the same for all versions. The last save wins."),
      errors,
      make("p", { class: "row" }, save, cancel),
    );
    field.value = now;
    form.addEventListener("keydown", (event) => event.key === "Escape" && show(true));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      save.disabled = true;
      try {
        const written = field.value.trim();
        const length = [...written].length;
        if (length > MOST) throw new Error(`Use at most ${count(MOST)} characters in a description. This one has ${count(length)}.`);
        const body = JSON.stringify({ description: written });
        await ask(place(name, "/description"), { method: "PUT", headers: { "Content-Type": "application/json" }, body });
        now = written;
        say("Description saved");
        show(true);
      } catch (error) {
        errors.replaceChildren(problem(error));
        save.disabled = false;
      }
    });
    part.replaceChildren(form);
    field.focus();
  };
  show(false);
  return part;
}

function reading(text) {
  const shown = make("p", { class: "text" }, text);
  if (text.length <= LONG && text.split("\n").length <= 8) return [shown];
  shown.classList.add("long");
  const more = make("button", { type: "button", class: "plain" }, "Show all");
  more.addEventListener("click", () => (shown.classList.remove("long"), more.remove()));
  return [shown, more];
}
