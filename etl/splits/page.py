"""The report of a split as one HTML page that fetches nothing and runs nothing. Pure: facts in, text out."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, log10
from string import Template
from typing import NamedTuple

_NAMED_BARS = 60  # with more classes, their sizes are one outline
_STEPS = 1_000  # of the outline; with more classes, a step is the mean of neighbours
_LISTED_ENDS = 2_000
_LISTED_CELLS = 40_000
_LONG = 28
_SHADES = ("{}", "color-mix(in srgb,{} 55%,var(--paper))", "color-mix(in srgb,{} 60%,var(--ink))")
_HUES = 7
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


class _Class(NamedTuple):
    name: str
    images: Sequence[int]
    ideal: Sequence[float]
    there: int
    copies: int

    @property
    def used(self) -> float:
        return sum(self.images) / self.copies

    @property
    def left_out(self) -> int:
        """Images in no split; negative where images stand in several splits and nobody said so."""
        return self.there - sum(self.images) // self.copies

    def off(self, split: int) -> float:
        """Images away from the ideal, without the last digits of a quotient, which are noise."""
        return round(abs(self.images[split] - self.ideal[split]), 6)


def render(facts: PageFacts) -> str:
    """The page as HTML, in light and dark, to be read without scripts and without a network.

    Classes stand from the largest to the smallest, equally large ones as given. Of very many the table lists the
    largest and the smallest, and says so, so that the page stays below some megabytes; the arithmetic is over all.
    """
    classes = sorted((_Class(*found, facts.copies) for found in facts.classes), key=lambda one: -one.there)
    return _PAGE.substitute(
        title=_text(facts.title),
        colours=_colours(len(facts.rows)),
        summary=_summary(facts),
        warnings=_warnings(facts.warnings),
        facts=_table("facts", (), ((_text(label), _text(value)) for label, value in facts.facts.items())),
        splits=_splits(facts, classes),
        balance=_balance(facts, classes),
        leaks=_leaks(facts.leaks),
        classes=_classes(facts, classes) if classes else "",
    )


def _summary(facts: PageFacts) -> str:
    rows, splits = sum(facts.rows), len(facts.rows)
    of = f"of {_number(len(facts.classes), 'class', 'classes')}" if facts.classes else "without classes"
    if facts.copies > 1:
        return f"{rows // facts.copies:,} images {of}, each in {facts.copies} of {splits} splits: once a fold."
    return f"{_number(rows, 'image', 'images')} {of} in {_number(splits, 'split', 'splits')}."


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{_text(warning)}</li>" for warning in warnings)
    title = _number(len(warnings), "warning", "warnings")
    return f'<section class="warnings"><h2>⚠ {title}</h2><ul>{items}</ul></section>'


def _splits(facts: PageFacts, classes: Sequence[_Class]) -> str:
    rows, asked = (max(1, sum(numbers) / facts.copies) for numbers in (facts.rows, facts.ideal_rows))
    heads = ["split", "fingerprint", "rows", "asked", "share", "asked share"]
    if classes:
        heads += ["largest deviation", "mean deviation", "off by 1 or more"]
    lines = []
    for split, (have, ideal, digits) in enumerate(zip(facts.rows, facts.ideal_rows, facts.fingerprints, strict=True)):
        line = [_key(facts, split), f"<code>{_text(digits[:12])}</code>", f"{have:,}", f"{ideal:,.1f}"]
        line += [f"{have / rows:.2%}", f"{ideal / asked:.2%}"]
        if classes:
            off = [one.off(split) for one in classes]
            line += [f"{max(off):,.2f}", f"{sum(off) / len(off):,.3f}", f"{sum(by >= 1 for by in off):,}"]
        lines.append(line)
    return _table("wide", heads, lines)


def _balance(facts: PageFacts, classes: Sequence[_Class]) -> str:
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
        name = f"{_text(_short(worst.name))} in {_text(facts.split_names[where])}"
        verdict += f" The largest deviation is {most:,.2f}: {name}."
    return f"{verdict} Deviations are in images, from an ideal that is seldom whole."


def _leaks(leaks: Mapping[str, Mapping[str, int]]) -> str:
    lines = []
    for kind, numbers in leaks.items():
        found = "; ".join(f"{_text(what)}: {number:,}" for what, number in numbers.items())
        said = f"<b>⚠ {found}</b>" if any(numbers.values()) else "none found"
        lines.append((_text(kind), said if numbers else _NOT_CHECKED))
    return _table("facts", (), lines) if lines else f"<p>{_NOT_CHECKED}</p>"


def _classes(facts: PageFacts, classes: Sequence[_Class]) -> str:
    keys = "".join(f"<li>{_key(facts, split)}</li>" for split in range(len(facts.rows)))
    if any(one.left_out > 0 for one in classes):
        keys += '<li><span class="key rest"></span>left out</li>'
    chart = _bars(facts, classes) if len(classes) <= _NAMED_BARS else _outline(facts, classes)
    return f'<h2>Images by class</h2><ul class="keys">{keys}</ul>{chart}{_listing(facts, classes)}'


def _bars(facts: PageFacts, classes: Sequence[_Class]) -> str:
    """A bar a class, cut by split; its whole length is the images that there are."""
    unit = 1000 / max(1, *(max(one.there, one.used) for one in classes))
    lines = []
    for one in classes:
        left = max(0, one.left_out)
        parts = [
            (f"c{split}", images / facts.copies, f"{_text(name)}: {images:,}")
            for split, (name, images) in enumerate(zip(facts.split_names, one.images, strict=True))
        ]
        label = ", ".join(what for _, _, what in parts)
        bar, start = "", 0.0
        for css, images, what in (*parts, ("rest", left, f"left out: {left:,}")):
            width = unit * images
            shown = width - 1.5 if width > 5 else width  # a gap between neighbours
            place = f'x="{start:.1f}" width="{shown:.1f}" height="9"'
            bar += f'<rect class="{css}" {place}><title>{what}</title></rect>' if images else ""
            start += width
        svg = f'<svg viewBox="0 0 1000 9" preserveAspectRatio="none" role="img" aria-label="{label}">{bar}</svg>'
        of = f" <i>of {one.there:,}</i>" if left else ""
        lines.append((f"<span{_hint(one.name)}>{_text(one.name)}</span>", svg, f"{one.used:,.0f}{of}"))
    return _table("bars", (), lines)


def _outline(facts: PageFacts, classes: Sequence[_Class]) -> str:
    """All classes side by side, largest first: a stack of outlines, each painted over the one that reaches higher."""
    run = ceil(len(classes) / _STEPS)
    runs = [classes[start : start + run] for start in range(0, len(classes), run)]
    there = [sum(max(one.there, one.used) for one in some) / len(some) for some in runs]
    stacks = []
    for some in runs:
        by_split = zip(*(one.images for one in some), strict=True)
        stacks.append([0.0, *accumulate(sum(images) / len(some) / facts.copies for images in by_split)])
    sizes = [one.there for one in classes if one.there]
    is_log = bool(sizes) and max(sizes) > 50 * min(sizes)
    top = max(1.0, *there)
    low = min(size for size in (*there, *(stack[-1] for stack in stacks)) if size) / 2 if is_log else 0.0

    def height(size: float) -> float:
        if is_log:
            return 1000 * log10(size / low) / log10(top / low) if size else 0.0
        return 1000 * size / top

    layers = _layer("rest", map(height, there))
    for split in reversed(range(len(facts.rows))):
        # A stack ends at its height on the scale and is divided by share: on a log scale no other way is fair.
        tops = (height(stack[-1]) * stack[split + 1] / stack[-1] if stack[-1] else 0.0 for stack in stacks)
        layers += _layer(f"c{split}", tops)
    marks = [(size, 1000 - height(size)) for size in _marks(low, top, is_log=is_log)]
    lines = "".join(f'<line x2="{len(runs)}" y1="{y:.0f}" y2="{y:.0f}"/>' for _, y in marks)
    hits = "".join(f'<rect x="{x}"><title>{_step(some, x * run)}</title></rect>' for x, some in enumerate(runs))
    first, last = (f"{_text(_short(one.name))}, {one.there:,}" for one in (classes[0], classes[-1]))
    return _OUTLINE.substitute(
        scale="log scale; colours divide a height by share" if is_log else "linear scale",
        labels="".join(f'<span style="top:{y / 10:.1f}%">{size:,}</span>' for size, y in marks),
        width=len(runs),
        picture=f"{lines}{layers}<g>{hits}</g>",
        first=f"largest: {first}",
        middle=f"{len(classes):,} classes by size" + (f"; a step is the mean of {run} neighbours" if run > 1 else ""),
        last=f"smallest: {last}",
    )


def _layer(css: str, heights: Iterable[float]) -> str:
    return f'<path class="{css}" d="M0 1000{"".join(f"V{1000 - height:.0f}h1" for height in heights)}V1000z"/>'


def _marks(low: float, top: float, *, is_log: bool) -> list[int]:
    """The sizes that an axis names: powers of ten, or some even steps from 0."""
    if is_log:
        return [10**power for power in range(max(0, ceil(log10(low))), floor(log10(top)) + 1)]
    ten = 10 ** floor(log10(top))
    step = next(step for step in (ten / 5, ten / 2, ten, 2 * ten) if top / step <= 5)
    return list(range(0, int(top) + 1, max(1, round(step))))


def _step(some: Sequence[_Class], before: int) -> str:
    """What a step of the outline is, for those who point at it."""
    name = _text(_short(some[0].name))
    if len(some) > 1:
        return f"{before + 1:,} to {before + len(some):,}: from {name}, {some[0].there:,} images"
    return f"{before + 1:,}. {name}: {' + '.join(f'{images:,}' for images in some[0].images)}"


def _listing(facts: PageFacts, classes: Sequence[_Class]) -> str:
    """All classes in numbers, or as many as are worth their bytes; a line in each cell is the split's share."""
    splits = len(facts.rows)
    ends = min(_LISTED_ENDS, max(10, _LISTED_CELLS // max(1, splits) // 2))
    between = len(classes) - 2 * ends
    listed = [*classes[:ends], *classes[-ends:]] if between > 0 else classes
    is_whole = all(round(ideal, 6) % 1 == 0 for one in listed for ideal in one.ideal)
    rows = [_numbers(one, "{:,.0f}" if is_whole else "{:,.1f}") for one in listed]
    note = ""
    if between > 0:
        note = f" Listed are the {ends:,} largest and the {ends:,} smallest of {len(classes):,} classes."
        gap = f"{between:,} classes of sizes between these are not listed."
        rows.insert(ends, f'<tr><th scope="row">…</th><td class="gap" colspan="{splits + 2}">{gap}</td></tr>')
    heads = "".join(f'<th scope="col">{_key(facts, split)} <i>asked</i></th>' for split in range(splits))
    return _LISTING.substitute(heads=heads, note=note, rows="\n".join(rows))


def _numbers(one: _Class, form: str) -> str:
    cells = []
    for split, images in enumerate(one.images):
        shown = f"<b>{images:,}</b>" if one.off(split) >= 1 else f"{images:,}"
        share = 100 * images / max(1, one.used)
        cells.append(f'<td style="--w:{share:.0f}%">{shown}<i>{form.format(one.ideal[split])}</i></td>')
    left = f"{one.left_out:,}" if one.left_out >= 0 else "–"
    name = f'<th scope="row"{_hint(one.name)}>{_text(one.name)}</th>'
    return f"<tr>{name}{''.join(cells)}<td>{left}</td><td>{one.there:,}</td></tr>"


def _table(css: str, heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of each line names it."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = ""
    for first, *cells in lines:
        body += f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="across"><table class="{css}">{head}<tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    """Text for anywhere in the page; what is no Unicode, as bytes in old file names, becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode())


def _number(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _short(name: str) -> str:
    return name if len(name) <= 2 * _LONG else f"{name[:_LONG]}…{name[-_LONG:]}"


def _hint(name: str) -> str:
    return f' title="{_text(name)}"' if len(name) > _LONG else ""


def _key(facts: PageFacts, split: int) -> str:
    return f'<span class="key c{split}"></span>{_text(facts.split_names[split])}'


def _colours(splits: int) -> str:
    """A colour a split, for its bars and its column: the hues, then these paler, then darker."""
    colours = (_SHADES[split // _HUES % len(_SHADES)].format(f"var(--h{split % _HUES})") for split in range(splits))
    return "\n".join(f".c{at},.cells td:nth-child({at + 2}){{--c:{colour}}}" for at, colour in enumerate(colours))


_OUTLINE = Template("""
<p class="axis">images of a class ($scale)</p>
<div class="plot"><div>$labels</div>
<svg viewBox="0 0 $width 1000" preserveAspectRatio="none" role="img" aria-label="$middle; $first; $last">$picture</svg>
</div>
<div class="ends"><span>$first</span><span>$middle</span><span>$last</span></div>
""")

_LISTING = Template("""
<h2>Classes in numbers</h2>
<p>Images of each class by split, and how many were asked. The line below is the split's share of the class;
<b>bold</b> is off by one image or more.$note</p>
<div class="scroll" tabindex="0" role="region" aria-label="Classes in numbers">
<table class="cells"><thead><tr><th scope="col">class</th>$heads
<th scope="col">left out</th><th scope="col">there are</th></tr></thead>
<tbody>$rows</tbody></table>
</div>
""")

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
