"""The classes of a split on its page: a bar each, or one outline for many; and all their numbers. Pure."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, floor, log10
from string import Template

from etl.splits.page.pieces import OfClass, hint, key, short, table, text

_NAMED_BARS = 60  # with more classes, their sizes are one outline
_STEPS = 1_000  # of the outline; with more classes, a step is the mean of neighbours
_LISTED_ENDS = 2_000
_LISTED_CELLS = 40_000


def pictures(names: Sequence[str], classes: Sequence[OfClass]) -> str:
    """The part of the page about the classes, largest first; ``names`` are those of the splits."""
    keys = "".join(f"<li>{key(names, split)}</li>" for split in range(len(names)))
    if any(one.left_out > 0 for one in classes):
        keys += '<li><span class="key rest"></span>left out</li>'
    chart = _bars(names, classes) if len(classes) <= _NAMED_BARS else _outline(names, classes)
    return f'<h2>Images by class</h2><ul class="keys">{keys}</ul>{chart}{_listing(names, classes)}'


def _bars(names: Sequence[str], classes: Sequence[OfClass]) -> str:
    """A bar a class, cut by split; its whole length is the images that there are."""
    unit = 1000 / max(1, *(max(one.there, one.used) for one in classes))
    lines = []
    for one in classes:
        left = max(0, one.left_out)
        parts = [
            (f"c{split}", images / one.copies, f"{text(name)}: {images:,}")
            for split, (name, images) in enumerate(zip(names, one.images, strict=True))
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
        lines.append((f"<span{hint(one.name)}>{text(one.name)}</span>", svg, f"{one.used:,.0f}{of}"))
    return table("bars", (), lines)


def _outline(names: Sequence[str], classes: Sequence[OfClass]) -> str:
    """All classes side by side, largest first: a stack of outlines, each painted over the one that reaches higher."""
    run = ceil(len(classes) / _STEPS)
    runs = [classes[start : start + run] for start in range(0, len(classes), run)]
    there = [sum(max(one.there, one.used) for one in some) / len(some) for some in runs]
    stacks = []
    for some in runs:
        by_split = zip(*(one.images for one in some), strict=True)
        stacks.append([0.0, *accumulate(sum(images) / len(some) / some[0].copies for images in by_split)])
    sizes = [one.there for one in classes if one.there]
    is_log = bool(sizes) and max(sizes) > 50 * min(sizes)
    top = max(1.0, *there)
    low = min(size for size in (*there, *(stack[-1] for stack in stacks)) if size) / 2 if is_log else 0.0

    def height(size: float) -> float:
        if is_log:
            return 1000 * log10(size / low) / log10(top / low) if size else 0.0
        return 1000 * size / top

    layers = _layer("rest", map(height, there))
    for split in reversed(range(len(names))):
        # A stack ends at its height on the scale and is divided by share: on a log scale no other way is fair.
        tops = (height(stack[-1]) * stack[split + 1] / stack[-1] if stack[-1] else 0.0 for stack in stacks)
        layers += _layer(f"c{split}", tops)
    marks = [(size, 1000 - height(size)) for size in _marks(low, top, is_log=is_log)]
    lines = "".join(f'<line x2="{len(runs)}" y1="{y:.0f}" y2="{y:.0f}"/>' for _, y in marks)
    hits = "".join(f'<rect x="{x}"><title>{_step(some, x * run)}</title></rect>' for x, some in enumerate(runs))
    first, last = (f"{text(short(one.name))}, {one.there:,}" for one in (classes[0], classes[-1]))
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


def _step(some: Sequence[OfClass], before: int) -> str:
    """What a step of the outline is, for those who point at it."""
    name = text(short(some[0].name))
    if len(some) > 1:
        return f"{before + 1:,} to {before + len(some):,}: from {name}, {some[0].there:,} images"
    return f"{before + 1:,}. {name}: {' + '.join(f'{images:,}' for images in some[0].images)}"


def _listing(names: Sequence[str], classes: Sequence[OfClass]) -> str:
    """All classes in numbers, or as many as are worth their bytes; a line in each cell is the split's share."""
    splits = len(names)
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
    heads = "".join(f'<th scope="col">{key(names, split)} <i>asked</i></th>' for split in range(splits))
    return _LISTING.substitute(heads=heads, note=note, rows="\n".join(rows))


def _numbers(one: OfClass, form: str) -> str:
    cells = []
    for split, images in enumerate(one.images):
        shown = f"<b>{images:,}</b>" if one.off(split) >= 1 else f"{images:,}"
        share = 100 * images / max(1, one.used)
        cells.append(f'<td style="--w:{share:.0f}%">{shown}<i>{form.format(one.ideal[split])}</i></td>')
    left = f"{one.left_out:,}" if one.left_out >= 0 else "–"
    name = f'<th scope="row"{hint(one.name)}>{text(one.name)}</th>'
    return f"<tr>{name}{''.join(cells)}<td>{left}</td><td>{one.there:,}</td></tr>"


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
