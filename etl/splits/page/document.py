"""The report of a split as one HTML page that fetches nothing and runs nothing. Pure: facts in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from etl.splits.page.classes import pictures
from etl.splits.page.pieces import OfClass, colours, key, number, short, table, text

_NOT_CHECKED = "not checked: the metadata have no such column"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What the page shows: plain text, nothing escaped.

    ``rows``, ``ideal_rows`` (what the ratios ask) and ``fingerprints`` have one entry a split, as ``split_names``.
    ``classes``: name, images by split, ideal by split, images that there are; in any order, none for images without
    classes. ``leaks``: numbers by what they count, for each kind of leak; a kind without numbers was not checked.
    ``copies``: in how many splits an image stands, which is the number of folds. Raises ValueError where a number of
    splits differs.
    """

    title: str
    facts: Mapping[str, str]
    split_names: Sequence[str]
    rows: Sequence[int]
    ideal_rows: Sequence[float]
    fingerprints: Sequence[str]
    classes: Sequence[tuple[str, Sequence[int], Sequence[float], int]]
    leaks: Mapping[str, Mapping[str, int]]
    warnings: Sequence[str]
    copies: int = 1

    def __post_init__(self) -> None:
        splits = len(self.split_names)
        found = {len(self.rows), len(self.ideal_rows), len(self.fingerprints)}
        found |= {len(by_split) for _, images, ideal, _ in self.classes for by_split in (images, ideal)}
        if wrong := found - {splits}:
            raise ValueError(f"Wanted every number for each of {splits} splits. Found: {min(wrong)} of one.")


def render(facts: PageFacts) -> str:
    """The page as HTML, in light and dark, to be read without scripts and without a network.

    Classes stand from the largest to the smallest, equally large ones as given. Of very many the table lists the
    largest and the smallest, and says so, so that the page stays below some megabytes; the arithmetic is over all.
    """
    classes = sorted((OfClass(*found, facts.copies) for found in facts.classes), key=lambda one: -one.there)
    return _PAGE.substitute(
        title=text(facts.title),
        colours=colours(len(facts.rows)),
        summary=_summary(facts),
        warnings=_warnings(facts.warnings),
        facts=table("facts", (), ((text(label), text(value)) for label, value in facts.facts.items())),
        splits=_splits(facts, classes),
        balance=_balance(facts, classes),
        leaks=_leaks(facts.leaks),
        classes=pictures(facts.split_names, classes) if classes else "",
    )


def _summary(facts: PageFacts) -> str:
    rows, splits = sum(facts.rows), len(facts.rows)
    of = f"of {number(len(facts.classes), 'class', 'classes')}" if facts.classes else "without classes"
    if facts.copies > 1:
        return f"{rows // facts.copies:,} images {of}, each in {facts.copies} of {splits} splits: once a fold."
    return f"{number(rows, 'image', 'images')} {of} in {number(splits, 'split', 'splits')}."


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{text(warning)}</li>" for warning in warnings)
    title = number(len(warnings), "warning", "warnings")
    return f'<section class="warnings"><h2>⚠ {title}</h2><ul>{items}</ul></section>'


def _splits(facts: PageFacts, classes: Sequence[OfClass]) -> str:
    rows, asked = (max(1, sum(numbers) / facts.copies) for numbers in (facts.rows, facts.ideal_rows))
    heads = ["split", "fingerprint", "rows", "asked", "share", "asked share"]
    if classes:
        heads += ["largest deviation", "mean deviation", "off by 1 or more"]
    lines = []
    for split, (have, ideal, digits) in enumerate(zip(facts.rows, facts.ideal_rows, facts.fingerprints, strict=True)):
        line = [key(facts.split_names, split), f"<code>{text(digits[:12])}</code>", f"{have:,}", f"{ideal:,.1f}"]
        line += [f"{have / rows:.2%}", f"{ideal / asked:.2%}"]
        if classes:
            off = [one.off(split) for one in classes]
            line += [f"{max(off):,.2f}", f"{sum(off) / len(off):,.3f}", f"{sum(by >= 1 for by in off):,}"]
        lines.append(line)
    return table("wide", heads, lines)


def _balance(facts: PageFacts, classes: Sequence[OfClass]) -> str:
    """How near every class came to what was asked of it, in words."""
    splits = range(len(facts.rows))
    if not classes:
        off = max((abs(facts.rows[split] - facts.ideal_rows[split]) for split in splits), default=0.0)
        return f"The images have no classes. No split is more than {off:,.2f} rows from what was asked."
    cells = [(one.off(split), one, split) for one in classes for split in splits]
    far = sum(off >= 1 for off, _, _ in cells)
    verdict = f"In <b>{far:,} of {len(cells):,}</b> cases, a class in a split is <b>off by one image or more</b>."
    if not far:
        verdict = "Every class is less than one image from what was asked, in every split."
    most, worst, where = max(cells, key=lambda cell: cell[0], default=(0.0, classes[0], 0))
    if most:
        name = f"{text(short(worst.name))} in {text(facts.split_names[where])}"
        verdict += f" The largest deviation is {most:,.2f}: {name}."
    return f"{verdict} Deviations are in images, from an ideal that is seldom whole."


def _leaks(leaks: Mapping[str, Mapping[str, int]]) -> str:
    lines = []
    for kind, numbers in leaks.items():
        found = "; ".join(f"{text(what)}: {images:,}" for what, images in numbers.items())
        said = f"<b>⚠ {found}</b>" if any(numbers.values()) else "none found"
        lines.append((text(kind), said if numbers else _NOT_CHECKED))
    return table("facts", (), lines) if lines else f"<p>{_NOT_CHECKED}</p>"


_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b616b; --line: #d9dce1; --paper: #fff; --rest: #c9cdd3;
  --loud: #a33a00; --tint: #fff3e6;
  --h0: #00528f; --h1: #e07b00; --h2: #2f9e6e; --h3: #b5538a; --h4: #3a9ad9; --h5: #b83a0e; --h6: #3d3d3d; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a8adb6; --line: #3a3f45; --paper: #17191c;
  --rest: #4b5159; --loud: #ffab73; --tint: #33241a;
  --h0: #2f86d0; --h1: #f5b040; --h2: #2fc59a; --h3: #c070a8; --h4: #a5daf8; --h5: #d05028; --h6: #f3ee9a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1.5rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.25rem 0 .6rem; }
p { color: var(--soft); margin: 0 0 .75rem; max-width: 52rem; } p b { color: var(--ink); }
i { font-style: normal; font-weight: 400; color: var(--soft); } code { font: 13px ui-monospace, monospace; }
.warnings { border: 2px solid var(--loud); border-left-width: 8px; border-radius: 4px; background: var(--tint);
  padding: .75rem 1.25rem; margin: 1.25rem 0; }
.warnings h2 { margin: 0; color: var(--loud); } .warnings ul { margin: .25rem 0 0; padding-left: 1.25rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } tr { border-bottom: 1px solid var(--line); }
th { text-align: left; font-weight: 600; } tbody th { font-weight: 400; } th, td { padding: .25rem 1.25rem .25rem 0; }
.across { overflow-x: auto; } .facts * { vertical-align: top; } .facts b { color: var(--loud); }
.facts th { color: var(--soft); min-width: 8.5rem; }
.wide th, .wide td { text-align: right; white-space: nowrap; } .wide :nth-child(-n+2) { text-align: left; }
.key { display: inline-block; width: .75em; height: .75em; margin-right: .5em; background: var(--c); }
.keys { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: 0 0 .75rem; }
.rest { --c: var(--rest); } rect, path { fill: var(--c); }
.bars { width: 100%; table-layout: fixed; } .bars tr { border: 0; } .bars td:last-child { width: 9rem; }
.bars th, .bars td { padding: .1rem .75rem .1rem 0; white-space: nowrap; } .bars svg { display: block; height: 1rem; }
.bars th { width: 15rem; overflow: hidden; text-overflow: ellipsis; } svg { width: 100%; }
@media (max-width: 45rem) { .bars th, .bars td:last-child { width: 30%; } }
.axis, .ends { margin: 0; font-size: .87rem; } .plot { position: relative; padding: .5rem 0 0 5rem; }
.plot div { position: absolute; inset: .5rem auto 0 0; width: 4.5rem; font-size: .87rem; color: var(--soft); }
.plot span { position: absolute; right: 0; transform: translateY(-50%); }
.plot svg { display: block; height: 18rem; } .plot line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.plot g rect { width: 1px; height: 1000px; fill: transparent; } .plot g rect:hover { fill: var(--ink); opacity: .35; }
.ends { display: flex; justify-content: space-between; gap: 2rem; padding: .4rem 0 0 5rem; color: var(--soft); }
.cells { font-size: .87rem; line-height: 1.3; border-collapse: separate; border-spacing: 0; min-width: 100%; }
.cells th, .cells td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
.cells th { background: var(--paper); } .cells thead th { position: sticky; top: 0; z-index: 1; text-align: right; }
.cells th:first-child { position: sticky; left: 0; text-align: left; max-width: 16rem; overflow: hidden;
  text-overflow: ellipsis; } .cells thead th:first-child { z-index: 2; }
.cells td { text-align: right; padding: .15rem .6rem 0; line-height: 1.9; } .cells td b { color: var(--loud); }
.cells td[style] { background: linear-gradient(var(--c), var(--c)) 0 100% / var(--w) 3px no-repeat content-box,
  linear-gradient(var(--line), var(--line)) 0 100% / 100% 3px no-repeat content-box; }
.cells i { display: inline-block; min-width: 4em; padding-left: .75em; }
.cells thead i { min-width: 3.25em; padding-left: .25em; } .cells .gap { text-align: left; color: var(--soft); }
.scroll { max-height: 40rem; overflow: auto; border: 1px solid var(--line); }
@media print { .scroll { max-height: none; overflow: visible; } body { print-color-adjust: exact; } }
$colours
</style>
</head>
<body>
<header><h1>$title</h1><p>$summary</p></header>
<main>
$warnings
<h2>What it is made from</h2>
$facts
<h2>Splits</h2>
<p>$balance</p>
$splits
<h2>Leakage between splits</h2>
$leaks
$classes
</main>
</body>
</html>
""")
