"""The picture of the benchmark of the loader: images a second against the round trip, a line for each way to read."""

from collections.abc import Mapping
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_SIZE = (900, 560)
_BOX = (80, 70, 860, 500)
_INK, _GREY = "#222222", "#cccccc"
_COLOURS = ("#1f6feb", "#d9822b", "#6b7785")


def draw(path: Path, curves: Mapping[str, Mapping[float, float]]) -> Path:
    """Write a PNG of curves by name: images a second, from 0, by round trip in seconds, at even distances."""
    image = Image.new("RGB", _SIZE, "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=15)
    left, top, right, bottom = _BOX
    pen.text((20, 14), "images of 110 kB from Cassandra, images/s by round trip", fill=_INK, font=font)
    rtts = sorted({rtt for points in curves.values() for rtt in points})
    highest = 1.12 * max((rate for points in curves.values() for rate in points.values()), default=1.0)

    def place(rtt: float, rate: float) -> tuple[float, float]:
        return left + (rtts.index(rtt) + 0.5) / len(rtts) * (right - left), bottom - rate / highest * (bottom - top)

    step = _step(highest)
    for number in range(int(highest / step) + 1):
        y = bottom - number * step / highest * (bottom - top)
        pen.line([(left, y), (right, y)], fill=_GREY)
        pen.text((left - 8, y), f"{number * step:,.0f}", fill=_INK, font=font, anchor="rm")
    for rtt in rtts:
        pen.text((place(rtt, 0)[0], bottom + 8), f"{1e3 * rtt:.0f} ms", fill=_INK, font=font, anchor="ma")
    for number, (name, points) in enumerate(curves.items()):
        colour, corners = _COLOURS[number % len(_COLOURS)], [place(*point) for point in sorted(points.items())]
        pen.line(corners, fill=colour, width=3)
        for (rtt, rate), (x, y) in zip(sorted(points.items()), corners, strict=True):
            pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour)
            # The numbers of the two fastest, which may be close together, stand above and below.
            faster = sum(other.get(rtt, 0.0) > rate for other in curves.values())
            anchor, away = ("mt", 8) if faster == 1 else ("mb", -8)
            pen.text((x, y + away), f"{rate:,.0f}", fill=colour, font=font, anchor=anchor)
        pen.rectangle((left + 260 * number, 44, left + 260 * number + 20, 56), fill=colour)
        pen.text((left + 260 * number + 28, 50), name, fill=_INK, font=font, anchor="lm")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def _step(highest: float) -> float:
    """The distance of lines: 1, 2 or 5 times a power of ten, at least 4 of them."""
    power = 1.0
    while power * 10 <= highest / 4:
        power *= 10
    return max(power * factor for factor in (1, 2, 5) if factor == 1 or power * factor <= highest / 4)
