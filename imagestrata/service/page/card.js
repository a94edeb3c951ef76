// The card of a dataset: its facts, images, classes, versions and commands.

import { address, json, place, token } from "./api.js";
import { bars, splitBars } from "./bars.js";
import { browser } from "./browser.js";
import { commandsOf } from "./commands.js";
import { isDrawn, kindOf, typeOf } from "./contents.js";
import { description } from "./description.js";
import { downloadLink } from "./download.js";
import { dropZone } from "./drop.js";
import { count, exact, make, size } from "./elements.js";
import { preview } from "./preview.js";
import { sheet } from "./sheet.js";
import { tabs } from "./tabs.js";
import { deletion, newestOf, versions } from "./versions.js";
import { isUnreadable, problem } from "./words.js";

/** The card of a dataset, or of one version of it. `within` is the folder or class whose files are shown. */
export async function card(name, version, within) {
  const asked = [json(place(name, "/card", version)), json(place(name, "/versions"))];
  try {
    return whole(name, version, within, ...(await Promise.all(asked)));
  } catch (error) {
    if (isUnreadable(error)) return unreadable(name, error, await asked[1]);
    throw error;
  }
}

function whole(name, version, within, found, all) {
  const shown = found.versions.find((one) => one.version === version) ?? found.newest;
  const view = make("div", { class: "view card" });
  const parts = shown ? [facts(found.card, shown), ...insides(name, found.card, shown, { version, within })] : [];
  const filename = shown?.kind === "file" ? shown.filename : "my_file.csv";
  const url = address("").replace(/\/$/, "");
  view.append(
    trail(),
    heading(name, shown, newestOf(all)),
    description(name, found.description),
    ...parts,
    dropZone(name, view, shown === null),
    ...(shown ? [versions(name, all, shown)] : []),
    make(
      "section",
      { "aria-labelledby": "use-title" },
      make("h2", { id: "use-title" }, "Use it elsewhere"),
      tabs(commandsOf({ name, url, version, filename, hasToken: token.get() !== null })),
    ),
    deletion(name, all),
  );
  return view;
}

/** A dataset with an unreadable version: open, restore or delete a version, or upload a new one. */
function unreadable(name, error, all) {
  const view = make("div", { class: "view card" });
  const title = make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, name), make("span", { class: "chip none" }, "cannot be read"));
  view.append(trail(), title, problem(error), versions(name, all), dropZone(name, view, false), deletion(name, all));
  return view;
}

/** The link to all datasets. */
export function trail() {
  return make("p", { class: "trail" }, make("a", { href: "#/" }, "Datasets"), " / ");
}

function heading(name, shown, newest) {
  const title = make("h1", { tabindex: "-1" }, name);
  if (shown === null) return make("div", { class: "heading" }, title, make("span", { class: "chip none" }, "empty"));
  const isOld = shown.version !== newest;
  return make(
    "div",
    { class: "heading" },
    title,
    make("span", { class: "chip" }, `version ${shown.version}`),
    isOld ? make("a", { href: `#/${name}` }, `The newest is ${newest}`) : null,
    downloadLink(name, shown, `Download, ${size(shown.bytes)}`, "button main"),
  );
}

function facts(card, shown) {
  const classes = card.num_classes ?? (card.classes ? Object.keys(card.classes).length : null);
  const isFile = shown.kind === "file";
  const given = [
    ["File name", isFile ? shown.filename : null],
    ["Type", isFile ? typeOf(shown.filename) : (card.type ?? shown.kind)],
    ["Images", card.images === undefined ? null : count(card.images)],
    ["Classes", classes === null ? null : count(classes)],
    ["Shards", card.shards === undefined ? null : count(card.shards)],
    ["Tables", card.tables?.join(", ") ?? null],
    ["Files", isFile ? null : count(shown.files)],
    ["Size", size(shown.bytes)],
    ["Uploaded", exact(shown.created)],
    ["By", shown.by],
  ];
  const known = given.filter(([, value]) => value !== null);
  return make("dl", { class: "facts" }, known.map(([key, value]) => make("div", { class: key === "File name" ? "long" : null }, make("dt", {}, key), make("dd", {}, value))));
}

function insides(name, card, shown, at) {
  const section = (key, title, ...children) =>
    make("section", { "aria-labelledby": key }, make("h2", { id: key }, title), children);
  const parts = [shown.kind === "file" ? contents(name, shown, section) : files(name, card, shown, at)].flat();
  if (Object.keys(card.classes ?? {}).length) {
    const each = bars(card.classes, "Images of each class");
    parts.push(section("classes-title", "Classes", each, firstOf(card.classes, card.num_classes, "classes")));
  }
  if (card.splits?.length) {
    const each = splitBars(card.splits, card.images);
    parts.push(section("splits-title", "Splits", each, firstOf(card.splits, card.num_splits, "splits")));
  }
  return parts.length < 2 ? parts : [parts[0], make("div", { class: "beside" }, parts.slice(1))];
}

/** A note if the card lists only the first entries. */
function firstOf(listed, total, what) {
  const number = Object.keys(listed).length;
  return total > number ? make("p", { class: "quiet" }, `The first ${count(number)} of ${count(total)} ${what}, by name.`) : null;
}

function files(name, card, shown, at) {
  const isOfImages = card.type === "images";
  const classes = isOfImages ? Object.keys(card.classes ?? {}) : [];
  return browser(name, shown.version, { classes, hasPictures: isOfImages, at });
}

/** A preview of a single file: an image, or its beginning as a table or text. */
function contents(name, shown, section) {
  const kind = kindOf(shown.filename);
  if (kind === null) return [];
  const file = { path: shown.filename, bytes: shown.bytes };
  if (kind === "picture" && !isDrawn(file)) return sheet(name, shown.version); // the service draws more than browsers do
  const part = section("contents-title", "Contents");
  preview(name, shown.version, file).then((made) => part.append(made));
  return part;
}
