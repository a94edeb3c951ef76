// A dialog that asks before something is deleted, and stays open if that fails.

import { make } from "./elements.js";
import { problem } from "./words.js";

/**
 * Ask for confirmation, then call `act`. With `word`, users must type it first. `sentences` are texts for problems by
 * status. Resolves to whether it was done.
 */
export function confirmed({ title, text, button, word = null, sentences = {}, act }) {
  const errors = make("div");
  const go = make("button", { type: "submit", class: "danger", disabled: word !== null }, button);
  const cancel = make("button", { type: "button", class: "plain" }, "Cancel");
  const field = make("input", { id: "confirm-word", autocomplete: "off", spellcheck: "false" });
  const typed = word === null ? [] : [make("label", { for: "confirm-word" }, "Type ", make("code", {}, word), " to confirm"), field];
  const form = make("form", {}, make("h2", { id: "confirm-title" }, title), make("p", {}, text), typed, errors, make("p", { class: "row end" }, cancel, go));
  const dialog = make("dialog", { class: "confirm", "aria-labelledby": "confirm-title" }, form);
  document.body.append(dialog);
  dialog.showModal();
  (word === null ? cancel : field).focus();
  field.addEventListener("input", () => (go.disabled = field.value.trim() !== word));
  cancel.addEventListener("click", () => dialog.close());
  return new Promise((resolve) => {
    let isDone = false;
    dialog.addEventListener("close", () => (dialog.remove(), resolve(isDone)));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (go.disabled) return;
      go.disabled = true;
      errors.replaceChildren();
      try {
        await act();
        isDone = true;
        dialog.close();
      } catch (error) {
        errors.replaceChildren(problem(error, sentences));
        go.disabled = false;
      }
    });
  });
}
