"""The picture of the benchmark of splits: how long each of two contenders took, for the figures that are about time."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from benchmarks.harness.results import Row
from benchmarks.splits.figures import FIGURES

CONTENDERS = {
    1: ("exact split, with positions", "sort by a hash"),
    2: ("exact split, without positions", "copy"),
    3: ("exact split of Cassandra's rows", "pandas"),
    6: ("exact split, a class with 90 %", "exact split, Zipf classes"),
    9: ("groups kept whole", "without groups"),
}
"""Figures whose ``ours`` and ``other`` are seconds: their names."""
_WIDTH, _HEIGHT_A_PAIR, _TOP, _LEFT = 900, 78, 50, 300
_INK, _BLUE, _LIGHT = "#222222", "#1f6feb", "#9aa7b5"


def draw(path: Path, rows: Iterable[Row]) -> Path:
    """Write a PNG with two bars for each such figure, on a scale of their own, with their ratio if there is one."""
    found = {row.figure: row for row in rows}
    image = Image.new("RGB", (_WIDTH, _TOP + _HEIGHT_A_PAIR * len(CONTENDERS)), "white")
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=15)
    pen.text((20, 14), "seconds, medians of runs in turn; each pair has a scale of its own", fill=_INK, font=font)
    for place, (number, names) in enumerate(CONTENDERS.items()):
        top, row = _TOP + _HEIGHT_A_PAIR * place, found.get(FIGURES[number].text)
        seconds = (row.ours, row.other) if row else (None, None)
        longest = max([value for value in seconds if value] or [1.0])
        for line, (name, value) in enumerate(zip(names, seconds, strict=True)):
            y = top + 30 * line
            pen.text((20, y + 4), name, fill=_INK, font=font)
            if value is None:
                pen.text((_LEFT, y + 4), "not measured", fill=_INK, font=font)
                continue
            end = _LEFT + 430 * value / longest
            pen.rectangle((_LEFT, y, end, y + 24), fill=_LIGHT if line else _BLUE)
            text = f"{value:.1f}" if line or not row or not row.value else f"{value:.1f}, ratio {row.value:.2f}"
            pen.text((end + 8, y + 4), text, fill=_INK, font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path
