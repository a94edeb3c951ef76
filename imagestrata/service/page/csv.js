// CSV tables (RFC 4180), with the separator that is most frequent in the first line.

/** Rows of cells. The last row is left out if the text was cut in it. */
export function rowsOf(text, { isCut = false, most = Infinity } = {}) {
  const separator = separatorOf(text);
  const rows = [];
  let [row, cell, isQuoted, isOpen] = [[], "", false, false];
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0] !== "" || isOpen) rows.push(row);
    [row, cell, isOpen] = [[], "", false];
  };
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const letter = text[at];
    if (isQuoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') cell += text[(at += 1)];
      else isQuoted = false;
    } else if (letter === separator) {
      row.push(cell);
      cell = "";
    } else if (letter === '"' && cell === "") [isQuoted, isOpen] = [true, true];
    else if (letter === "\n") endRow();
    else if (letter !== "\r" || text[at + 1] !== "\n") cell += letter;
  }
  if (!isCut && rows.length < most && (cell !== "" || row.length || isOpen)) endRow();
  return rows;
}

function separatorOf(text) {
  const [line] = text.split("\n", 1);
  const counted = [",", ";", "\t", "|"].map((separator) => [line.split(separator).length, separator]);
  return counted.reduce((best, one) => (one[0] > best[0] ? one : best))[1];
}
