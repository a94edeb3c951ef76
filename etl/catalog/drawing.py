"""A lineage as text and as a picture (SVG)."""

from collections import Counter
from collections.abc import Iterator
from html import escape

from etl.catalog.lineage import Lineage

_COLUMNS = ("run", "files", "table", "feature view", "label view", "image", "split", "rows", "folders", "shards",
            "shard set", "feature export", "model")  # fmt: skip
"""Kinds from left to right. Kinds that a lineage does not have take no room."""
_COLOURS = {"run": "#dbe7f3", "table": "#cfe3d4", "image": "#fbe3b5", "split": "#e5dcf2", "shard set": "#f6d9d5",
            "model": "#d3ecec"}  # fmt: skip
_WIDTH, _HEIGHT, _GAP, _ROW, _MARGIN = 272, 48, 180, 74, 24
_LETTERS, _LETTERS_OF_LINE = 37, 30


def as_text(lineage: Lineage) -> str:
    """The lineage as lines for a terminal: the subject, what it was made from, what was made from it, its history, and
    what is not known.
    """
    subject = lineage.subject
    lines = [f"{subject.kind} {subject.name}"]
    lines += [f"  {name:<10} {value}" for name, value in _shown(lineage)]
    for title, is_back in (("made from", True), ("used in", False)):
        branch = list(_branch(lineage, subject.key, is_back=is_back, depth=1))
        lines += [title, *branch] if branch else []
    if lineage.history:
        lines.append("history")
        for state in lineage.history:
            reason = f": {state['reason']}" if state["reason"] else ""
            label = "" if state["label"] is None else f"; label {state['label']}"
            sha256 = f", sha256 {state['sha256'][:12]}" if state["sha256"] else ""
            lines.append(f"  {state['kind']} by run {state['until']}, {state['at']}{reason}{label}{sha256}")
    if lineage.unknown:
        lines += ["not known", *(f"  {line}" for line in lineage.unknown)]
    return "\n".join(lines)


def _shown(lineage: Lineage) -> Iterator[tuple[str, str]]:
    for name, value in lineage.subject.details.items():
        if name in ("address", "options", "images", "format", "rows", "code_version") or value in (None, "", [], {}):
            continue
        values = value if isinstance(value, list) else [value]
        yield name, ", ".join(text[:12] if name == "fingerprint" else text for text in map(str, values))


def _branch(lineage: Lineage, key: str, *, is_back: bool, depth: int) -> Iterator[str]:
    """The lines of everything behind a thing, indented."""
    for edge in lineage.edges:
        here, there = (edge.target, edge.source) if is_back else (edge.source, edge.target)
        if here == key:
            node = lineage.nodes[there]
            told = ", ".join(filter(None, (edge.text, node.summary)))
            yield f"{'  ' * depth}{node.kind} {node.name}{': ' if told else ''}{told}"
            yield from _branch(lineage, there, is_back=is_back, depth=depth + 1)


def as_svg(lineage: Lineage) -> str:
    """The lineage as the text of an SVG file: a column for each kind, a box for each thing, a line for each use."""
    by_kind = {kind: [one for one in lineage.nodes.values() if one.kind == kind] for kind in _COLUMNS}
    columns = [nodes for nodes in by_kind.values() if nodes]
    most = max(map(len, columns))
    places = {
        node.key: (_MARGIN + column * (_WIDTH + _GAP), _MARGIN + int((row + (most - len(nodes)) / 2) * _ROW))
        for column, nodes in enumerate(columns)
        for row, node in enumerate(nodes)
    }
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP) - _GAP
    height = 2 * _MARGIN + most * _ROW - (_ROW - _HEIGHT)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    above: Counter[str] = Counter()  # texts at the ends of lines to the same box are above each other
    for edge in lineage.edges:
        drawn += _line(places[edge.source], places[edge.target], edge.text, above=above[edge.target])
        above[edge.target] += bool(edge.text)
    for key, (x, y) in places.items():
        node = lineage.nodes[key]
        border = "3" if node == lineage.subject else "1"
        colour = _COLOURS.get(node.kind, "#eee")
        told = "\n".join(filter(None, (key, node.summary)))
        drawn += [
            f"<g><title>{escape(told)}</title>",
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{colour}" '
            f'stroke="#555" stroke-width="{border}"/>',
            f'<text x="{x + 10}" y="{y + 19}" fill="#555">{escape(node.kind)}</text>',
            f'<text x="{x + 10}" y="{y + 37}">{escape(_short(node.name, _LETTERS))}</text></g>',
        ]
    return "\n".join([*drawn, "</svg>\n"])


def _line(source: tuple[int, int], target: tuple[int, int], text: str, *, above: int) -> list[str]:
    """A curve from the right side of one box to the left side of another, with its text above its end."""
    x1, y1, x2, y2 = source[0] + _WIDTH, source[1] + _HEIGHT // 2, target[0], target[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    found = [f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" fill="none" stroke="#888"/>']
    if text:
        found.append(
            f'<text x="{x2 - 6}" y="{y2 - 6 - 12 * above}" text-anchor="end" font-size="10" fill="#555">'
            f"<title>{escape(text)}</title>{escape(_short(text, _LETTERS_OF_LINE))}</text>"
        )
    return found


def _short(text: str, letters: int) -> str:
    """The end of a long text, from a slash on if there is one: addresses differ at their ends."""
    if len(text) <= letters:
        return text
    end = text[1 - letters :]
    return f"…{end[max(0, end.find('/')) :]}"
