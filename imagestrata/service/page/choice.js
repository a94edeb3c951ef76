// Dropped or chosen data: one file, or the files of a folder with their paths.

/** The dropped files: `{files: [{path, file}], isFolder, label}`. Call it during the event. */
export function dropped(transfer) {
  const entries = [...transfer.items]
    .filter((item) => item.kind === "file")
    .map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  return gathered(entries);
}

async function gathered(entries) {
  const [first] = entries;
  if (entries.length === 1 && first.isDirectory) {
    return { files: await inside(first, ""), isFolder: true, label: first.name };
  }
  const found = [];
  for (const entry of entries) {
    if (entry.isDirectory) found.push(...(await inside(entry, `${entry.name}/`)));
    else found.push({ path: entry.name, file: entry instanceof File ? entry : await fileOf(entry) });
  }
  return chosen(found);
}

/** The files chosen in a field. The name of a chosen folder is removed from the paths. */
export function picked(list) {
  const files = [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
  if (!files.some(({ file }) => file.webkitRelativePath)) return chosen(files);
  const label = files[0].path.split("/")[0];
  return { files: files.map(({ path, file }) => ({ path: path.slice(label.length + 1), file })), isFolder: true, label };
}

function chosen(files) {
  const isFolder = files.length > 1;
  return { files, isFolder, label: isFolder ? `${files.length} files` : (files[0]?.path ?? "nothing") };
}

async function inside(folder, above) {
  const found = [];
  for (const entry of await entriesOf(folder)) {
    if (entry.isDirectory) found.push(...(await inside(entry, `${above}${entry.name}/`)));
    else found.push({ path: above + entry.name, file: await fileOf(entry) });
  }
  return found;
}

async function entriesOf(folder) {
  const reader = folder.createReader();
  const found = [];
  for (;;) {
    // It returns a hundred entries at a time, and none at the end.
    const page = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (page.length === 0) return found;
    found.push(...page);
  }
}

function fileOf(entry) {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}
