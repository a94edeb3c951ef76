// Tabs of commands, each with a button to copy it.

import { make, say } from "./elements.js";

export function tabs(groups) {
  const panels = groups.map(({ title, commands }) => {
    const given = { role: "tabpanel", id: `panel-${title}`, "aria-labelledby": `tab-${title}` };
    return make("div", given, commands.map(block));
  });
  const heads = groups.map(({ title }) => {
    const given = { type: "button", role: "tab", id: `tab-${title}`, "aria-controls": `panel-${title}` };
    return make("button", given, title);
  });
  const show = (place) => {
    heads.forEach((head, at) => {
      head.setAttribute("aria-selected", String(at === place));
      head.tabIndex = at === place ? 0 : -1;
      panels[at].hidden = at !== place;
    });
  };
  heads.forEach((head, at) => {
    head.addEventListener("click", () => show(at));
    head.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (at + step + heads.length) % heads.length;
      show(next);
      heads[next].focus();
    });
  });
  show(0);
  return make("div", {}, make("div", { role: "tablist", "aria-label": "Commands" }, heads), panels);
}

function block({ label, text }) {
  const button = make("button", { type: "button", class: "plain", "aria-label": `Copy: ${label}` }, "Copy");
  const code = make("code", {}, text);
  button.addEventListener("click", async () => {
    const done = await copied(text, code);
    button.textContent = done ? "Copied" : "Select and copy";
    say(done ? `${label}: copied` : `${label}: selected, copy it now`);
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  const head = make("p", { class: "row" }, make("span", { class: "quiet" }, label), button);
  return make("div", { class: "command" }, head, make("pre", {}, code));
}

async function copied(text, code) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS, browsers block the clipboard, but a selection can be copied.
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}
