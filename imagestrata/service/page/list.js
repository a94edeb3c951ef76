// All datasets, page by page, with a filter and a form for a new one.

import { create, json } from "./api.js";
import { hold, watch } from "./drop.js";
import { count, make, say, size, when } from "./elements.js";
import { problem } from "./words.js";

const PAGE = 50;
const LARGE_PAGE = 1000;

export async function list() {
  const known = [];
  let next = await more(known, "", PAGE);
  let asked = 0;
  const rows = make("tbody");
  const empty = make("p", { class: "empty quiet", hidden: true });
  const errors = make("div");
  const button = make("button", { type: "button", hidden: true }, "More");
  const filter = make("input", { id: "filter", type: "search", placeholder: "Filter by name or type", autocomplete: "off" });

  const show = () => {
    const words = filter.value.trim().toLowerCase();
    const found = known.filter((one) => `${one.name} ${one.type ?? ""}`.toLowerCase().includes(words));
    rows.replaceChildren(...found.map(row));
    rows.parentElement.hidden = found.length === 0;
    empty.hidden = found.length > 0;
    empty.textContent = known.length ? `No dataset matches “${filter.value}”.` : "There are no datasets yet. Create the first one.";
    button.hidden = next === null || words !== "";
    return found.length;
  };
  let loading = null;
  const fetched = async (limit) => {
    errors.replaceChildren();
    try {
      next = await more(known, next, limit);
    } catch (error) {
      errors.replaceChildren(problem(error));
      return false;
    } finally {
      loading = null;
    }
    return true;
  };
  // One at a time, or a page would be added twice.
  const load = (limit) => (loading ??= fetched(limit));
  button.addEventListener("click", async () => {
    button.disabled = true;
    await load(PAGE);
    button.disabled = false;
    show();
    say(`${count(known.length, "dataset")} shown`);
  });
  filter.addEventListener("input", async () => {
    const mine = ++asked;
    show();
    // A filter applies to all datasets, not only to those on the page.
    while (filter.value.trim() && next !== null && mine === asked && (await load(LARGE_PAGE)));
    if (mine === asked) say(`${count(show(), "dataset")} found`);
  });

  const heads = ["Name", "Type", "Images", "Size", "Files", "Newest version"];
  const head = make("tr", {}, heads.map((text) => make("th", { scope: "col", class: number(text) }, text)));
  const table = make("table", { class: "datasets" }, make("thead", {}, head), rows);
  show();
  const { form, take } = creation();
  const view = make(
    "div",
    { class: "view" },
    make("h1", { tabindex: "-1" }, "Datasets"),
    make("div", { class: "tools" }, make("div", {}, make("label", { for: "filter" }, "Filter"), filter), form),
    errors,
    table,
    empty,
    make("p", { class: "row middle" }, button),
  );
  watch(view, take);
  return view;
}

async function more(known, cursor, limit) {
  const query = new URLSearchParams({ limit, ...(cursor ? { cursor } : {}) });
  const page = await json(`datasets?${query}`);
  known.push(...page.datasets);
  return page.next;
}

const number = (head) => (["Images", "Size", "Files"].includes(head) ? "number" : null);

function row({ name, type, images, newest, summary, problem: why }) {
  const cell = (head, ...children) => make("td", { "data-head": head, class: number(head) }, children);
  const none = () => make("span", { class: "quiet" }, "–");
  const version = newest && [make("span", { class: "version" }, `v${newest.version}`), " ", when(newest.created)];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, make("a", { href: `#/${name}` }, name), summary === null ? null : make("p", { class: "summary quiet" }, summary)),
    cell("Type", newest ? make("span", { class: "chip" }, type ?? newest.kind) : make("span", { class: "chip none" }, why ? "cannot be read" : "empty")),
    cell("Images", images === null ? none() : count(images)),
    cell("Size", newest ? size(newest.bytes) : none()),
    cell("Files", newest ? count(newest.files) : none()),
    cell("Newest version", newest ? version : none()),
  );
}

/** A form for a new dataset. `take` receives data that is dropped before the dataset has a name. */
function creation() {
  const given = { maxlength: "200", autocomplete: "off", spellcheck: "false", "aria-describedby": "new-error" };
  const field = make("input", { id: "new-name", ...given });
  const errors = make("div", { id: "new-error", "aria-live": "polite" });
  let brought = null;
  const button = make("button", { type: "submit", class: "main" }, "Create");
  const form = make(
    "form",
    { class: "creation", novalidate: true },
    make("label", { for: "new-name" }, "New dataset"),
    make("div", { class: "row" }, field, button),
    errors,
  );
  field.placeholder = "my_dataset";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    errors.replaceChildren();
    const name = field.value.trim();
    try {
      check(name);
      await create(name);
      if (brought !== null) hold(name, brought);
      location.hash = `#/${name}`;
    } catch (error) {
      errors.replaceChildren(problem(error, { 409: `A dataset named ${name} exists already. Choose another name.` }));
      field.focus();
    } finally {
      button.disabled = false;
    }
  });
  const take = async (found) => {
    const { label } = (brought = await found);
    field.value ||= label.replace(/\.[a-z]+$/i, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+|[.-]+$/g, "").slice(0, 100);
    errors.replaceChildren(make("p", {}, make("strong", {}, label), " is ready. Choose a name for the dataset first."));
    field.focus();
    field.select();
  };
  return { form, take };
}

/** Check a name before the service does, for a better message. */
function check(name) {
  if (name === "") throw new Error("Choose a name first.");
  if (name.length > 100) throw new Error("Choose a name of at most 100 characters.");
  if (!/^[A-Za-z0-9._-]+$/.test(name)) throw new Error("Use only letters from A to Z, digits, dots, dashes and underscores in a name.");
  if (!/^[A-Za-z0-9]/.test(name) || name.endsWith(".")) throw new Error("A name must begin with a letter or digit and must not end with a dot.");
}
