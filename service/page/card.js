// A dataset's card: what is known of it, its pictures, its classes, its versions, and how to use it.

import { address, ask, json, place, token } from "./api.js";
import { bars, splitBars } from "./bars.js";
import { commandsOf } from "./commands.js";
import { downloadLink } from "./download.js";
import { dropZone } from "./drop.js";
import { count, make, size, when } from "./elements.js";
import { tabs } from "./tabs.js";

const WIDE = 900; // a row of six
const PICTURE = /\.(jpe?g|png|bmp|gif|webp|tiff?)$/i;

/** The card of a dataset, or of one version of it. */
export async function card(name, version) {
  const found = await json(place(name, "/card", version));
  const shown = found.versions.find((one) => one.version === version) ?? found.newest;
  const view = make("div", { class: "view card" });
  const parts = shown ? [facts(found.card, shown), ...insides(name, found.card, shown)] : [];
  const filename = shown?.kind === "file" ? shown.filename : "my_file.csv";
  const url = address("").replace(/\/$/, "");
  view.append(
    trail(),
    heading(name, shown, found.newest),
    ...parts,
    dropZone(name, view, shown === null),
    ...(shown ? [versions(name, found.versions, shown)] : []),
    make(
      "section",
      { "aria-labelledby": "use-title" },
      make("h2", { id: "use-title" }, "Use it elsewhere"),
      tabs(commandsOf({ name, url, version, filename, hasToken: token.get() !== null })),
    ),
  );
  return view;
}

/** The way back to all datasets. */
export function trail() {
  return make("p", { class: "trail" }, make("a", { href: "#/" }, "Datasets"), " / ");
}

function heading(name, shown, newest) {
  const title = make("h1", { tabindex: "-1" }, name);
  if (shown === null) return make("div", { class: "heading" }, title, make("span", { class: "chip none" }, "empty"));
  const isOld = shown.version !== newest.version;
  return make(
    "div",
    { class: "heading" },
    title,
    make("span", { class: "chip" }, `version ${shown.version}`),
    isOld ? make("a", { href: `#/${name}` }, `The newest is ${newest.version}`) : null,
    downloadLink(name, shown, `Download, ${size(shown.bytes)}`, "button main"),
  );
}

function facts(card, shown) {
  const classes = card.classes ? Object.keys(card.classes).length : null;
  const given = [
    ["Type", card.type ?? shown.kind],
    ["Images", card.images === undefined ? null : count(card.images)],
    ["Classes", classes === null ? null : count(classes)],
    ["Shards", card.shards === undefined ? null : count(card.shards)],
    ["Tables", card.tables?.join(", ") ?? null],
    ["Files", count(shown.files)],
    ["Size", size(shown.bytes)],
    ["Uploaded", when(shown.created)],
    ["By", shown.by],
  ];
  const known = given.filter(([, value]) => value !== null);
  return make("dl", { class: "facts" }, known.map(([key, value]) => make("div", {}, make("dt", {}, key), make("dd", {}, value))));
}

function insides(name, card, shown) {
  const parts = [];
  if (card.type === "images" || (shown.kind === "file" && PICTURE.test(shown.filename))) parts.push(sheet(name, shown));
  const section = (key, title, ...children) =>
    make("section", { "aria-labelledby": key }, make("h2", { id: key }, title), children);
  if (Object.keys(card.classes ?? {}).length) {
    parts.push(section("classes-title", "Classes", bars(card.classes, "Images of each class")));
  }
  if (card.splits?.length) parts.push(section("splits-title", "Splits", splitBars(card.splits)));
  return parts.length < 2 ? parts : [parts[0], make("div", { class: "beside" }, parts.slice(1))];
}

/** Some of its pictures; with a token they come through a request that has it. */
function sheet(name, shown) {
  const image = make("img", { alt: `Some of the pictures of ${name}`, class: "sheet" });
  const figure = make("figure", {}, image);
  image.addEventListener("load", () => {
    figure.classList.toggle("wide", image.naturalWidth > WIDE);
    image.classList.add("there");
  });
  image.addEventListener("error", () => figure.remove());
  const path = place(name, "/sheet", shown.version);
  if (token.get() === null) {
    image.src = address(path);
  } else {
    ask(path)
      .then((answer) => answer.blob())
      .then((blob) => (image.src = URL.createObjectURL(blob)))
      .catch(() => figure.remove());
    image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  }
  return figure;
}

function versions(name, all, shown) {
  const heads = ["Version", "Uploaded", "Size", "Files", "SHA-256", "By", ""];
  const row = (one) =>
    make(
      "tr",
      one.version === shown.version ? { "aria-current": "true" } : {},
      make("th", { scope: "row" }, make("a", { href: `#/${name}?version=${one.version}` }, `v${one.version}`)),
      make("td", { "data-head": "Uploaded" }, when(one.created)),
      make("td", { "data-head": "Size", class: "number" }, size(one.bytes)),
      make("td", { "data-head": "Files", class: "number" }, count(one.files)),
      make("td", { "data-head": "SHA-256" }, make("code", { title: one.sha256 }, one.sha256.slice(0, 12))),
      make("td", { "data-head": "By" }, one.by ?? "–"),
      make("td", { class: "number" }, downloadLink(name, one, "Download")),
    );
  const head = (text) => make("th", { scope: "col", class: ["Size", "Files"].includes(text) ? "number" : null }, text);
  const table = make("table", {}, make("thead", {}, make("tr", {}, heads.map(head))), make("tbody", {}, all.map(row)));
  return make("section", { "aria-labelledby": "versions-title" }, make("h2", { id: "versions-title" }, "Versions"), table);
}
