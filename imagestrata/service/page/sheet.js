// A contact sheet of a dataset. Each image has its label, and a click shows it large.

import { address, ask, json, place, token } from "./api.js";
import { make } from "./elements.js";
import { view } from "./viewer.js";

const WIDE = 900; // a row of six

/** The contact sheet of a version, a folder or a class. It is removed if there are no images. */
export function sheet(name, version, within = {}) {
  const figure = make("figure", {});
  fill(figure, name, version, within).catch(() => figure.remove());
  return figure;
}

async function fill(figure, name, version, within) {
  const found = await json(place(name, "/sheet/pictures", version, within));
  if (found.pictures.length === 0) return figure.remove();
  const image = make("img", { alt: `Some of the images of ${name}`, class: "sheet" });
  const path = place(name, "/sheet", version, within);
  // With a token, it is loaded by a request with the token.
  image.src = token.get() === null ? address(path) : URL.createObjectURL(await (await ask(path)).blob());
  figure.append(image);
  await image.decode();
  if (token.get() !== null) URL.revokeObjectURL(image.src);
  figure.classList.toggle("wide", image.naturalWidth > WIDE);
  figure.append(cells(found, image, name, version));
  image.classList.add("there");
}

/** A button over each image. */
function cells({ pictures, columns, gap }, image, name, version) {
  const over = make(
    "div",
    { class: "cells" },
    pictures.map((file, at) =>
      make(
        "button",
        { type: "button", "aria-label": `Show ${file.path}`, title: file.path, on: { click: () => view(name, version, pictures, at) } },
        file.label === null ? null : make("span", { "aria-hidden": "true" }, file.label),
      ),
    ),
  );
  over.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  over.style.gridTemplateRows = `repeat(${Math.ceil(pictures.length / columns)}, minmax(0, 1fr))`;
  over.style.columnGap = `${(100 * gap) / image.naturalWidth}%`;
  over.style.rowGap = `${(100 * gap) / image.naturalHeight}%`;
  return over;
}
