// The files of a folder dataset, by level or by class, page by page.

import { json, place } from "./api.js";
import { kindOf } from "./contents.js";
import { downloadFile } from "./download.js";
import { count, make, say, size } from "./elements.js";
import { sheet } from "./sheet.js";
import { view } from "./viewer.js";
import { problem } from "./words.js";

const PAGE = 25;

/**
 * A file browser for a version. `classes` are the names of its class folders, `at` is what the address names: its
 * `version`, if any, and the folder or class `within` it. Each folder and class has an address of its own.
 */
export function browser(name, version, { classes, hasPictures, at }) {
  const title = make("h2", { id: "files-title" }, "Files");
  const trail = make("nav", { class: "levels", "aria-label": "Folders" });
  const filter = make("select", { id: "class" }, [make("option", { value: "" }, "All classes"), classes.map((one) => make("option", { value: one }, one))]);
  const pictures = make("div");
  const rows = make("ul", { class: "files" });
  const errors = make("div");
  const more = make("button", { type: "button", hidden: true }, "More");
  let [folder, files, next, shown, asked] = ["", [], null, 0, 0];

  const address = (cursor) => {
    const where = filter.value ? { class: filter.value } : { prefix: folder, delimiter: "/" };
    return place(name, "/files", version, { ...where, limit: PAGE, ...(cursor ? { cursor } : {}) });
  };
  /** Load a page; whether there was one. */
  const load = async () => {
    const mine = asked;
    try {
      const page = await json(address(next));
      if (mine !== asked) return false;
      errors.replaceChildren();
      next = page.next;
      for (const file of page.files) file.label = hasPictures ? file.path.split("/").at(-2) : null;
      files.push(...page.files);
      shown += page.files.length + page.folders.length;
      const all = [...page.folders.map((path) => ({ path })), ...page.files];
      all.sort((one, other) => (one.path < other.path ? -1 : 1));
      rows.append(...all.map((one) => (one.bytes === undefined ? folderRow(one.path) : fileRow(one))));
      more.hidden = next === null;
      return page.files.length > 0;
    } catch (error) {
      if (mine === asked) errors.replaceChildren(problem(error));
      return false;
    }
  };
  const go = async (path, { moves = true, isNew = moves } = {}) => {
    asked += 1;
    if (isNew) history.pushState(null, "", addressOf(path));
    [folder, files, next, shown] = [path, [], null, 0];
    more.hidden = true;
    drawTrail();
    const within = filter.value ? { class: filter.value } : folder ? { prefix: folder } : {};
    pictures.replaceChildren(...(hasPictures ? [sheet(name, version, within)] : []));
    rows.replaceChildren();
    errors.replaceChildren();
    const mine = asked;
    await load();
    if (mine !== asked) return;
    const where = filter.value ? `class ${filter.value}` : folder && `folder ${folder}`;
    if (where && shown === 0 && !errors.hasChildNodes()) errors.replaceChildren(problem(new Error(`This version has no ${where}.`)));
    if (!moves) return;
    if (!filter.matches(":focus")) trail.querySelector("[aria-current]").focus();
    say(`${count(shown, "entry").replace("entrys", "entries")}${next === null ? "" : ", and more"} in ${filter.value || folder || name}`);
  };
  const addressOf = (path) => {
    const within = filter.value ? { class: filter.value } : path ? { folder: path } : {};
    const query = new URLSearchParams({ ...(at.version === null ? {} : { version: at.version }), ...within }).toString();
    return `#/${name}${query && `?${query}`}`;
  };
  /** Show what the address names, also a class that the list lacks. */
  const follow = (within, options) => {
    if (within.class && ![...filter.options].some(({ value }) => value === within.class)) filter.append(make("option", { value: within.class }, within.class));
    filter.value = within.class;
    return go(within.class || !within.folder ? "" : within.folder.replace(/\/*$/, "/"), options);
  };
  const drawTrail = () => {
    const parts = folder.split("/").slice(0, -1);
    const steps = [[name, ""], ...parts.map((part, at) => [part, `${parts.slice(0, at + 1).join("/")}/`])];
    if (filter.value) steps.splice(1, Infinity, [`class ${filter.value}`, null]);
    const last = steps.length - 1;
    const step = ([text, path], at) =>
      at === last
        ? make("span", { "aria-current": "location", tabindex: "-1" }, text)
        : make("button", { type: "button", class: "plain", on: { click: () => ((filter.value = ""), go(path)) } }, text);
    trail.replaceChildren(...steps.flatMap((one, at) => (at ? [" / ", step(one, at)] : [step(one, at)])));
  };
  const folderRow = (path) =>
    make("li", {}, make("button", { type: "button", class: "name folder", on: { click: () => go(path) } }, `${path.slice(folder.length)}`));
  const fileRow = (file) => {
    const text = filter.value ? file.path : file.path.slice(folder.length);
    const open = () => {
      const kind = kindOf(file.path);
      const like = files.filter((one) => (kind === "picture" ? kindOf(one.path) === kind : one === file));
      const further = async () => {
        const before = files.length;
        if (kind !== "picture" || next === null || !(await load())) return false;
        like.push(...files.slice(before).filter((one) => kindOf(one.path) === kind));
        return true;
      };
      view(name, version, like, like.indexOf(file), further);
    };
    const first = kindOf(file.path)
      ? make("button", { type: "button", class: "name", on: { click: open } }, text)
      : make("span", { class: "name" }, text);
    const save = make("button", { type: "button", class: "plain", "aria-label": `Download ${file.path}`, on: { click: () => downloadFile(name, version, file) } }, "Download");
    return make("li", {}, first, make("span", { class: "quiet number" }, size(file.bytes)), save);
  };
  more.addEventListener("click", async () => {
    more.disabled = true;
    const last = rows.lastElementChild;
    await load();
    more.disabled = false;
    if (more.hidden) last.nextElementSibling?.querySelector("button")?.focus();
    say(`${count(shown)} shown`);
  });
  filter.addEventListener("change", () => go(""));
  const choice = classes.length ? make("p", { class: "row" }, make("label", { for: "class" }, "Class"), filter) : null;
  follow(at.within, { moves: false });
  return make(
    "section",
    { class: "browser", "aria-labelledby": "files-title", on: { within: ({ detail }) => follow(detail, { isNew: false }) } },
    make("div", { class: "heading" }, title, choice),
    trail,
    pictures,
    rows,
    errors,
    make("p", { class: "row middle" }, more),
  );
}
