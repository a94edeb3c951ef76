"""The picture of the benchmark of ingest: how fast each contender was, and a worker's memory over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_SIZE = (900, 640)
_INK, _GREY, _BLUE, _LIGHT = "#222222", "#bbbbbb", "#1f6feb", "#9aa7b5"


def draw(path: Path, *, speeds: Mapping[str, Sequence[float]], memory: Sequence[tuple[float, float]]) -> Path:
    """Write a PNG of bars (MB/s of each run, and their mean; the first name is ours) and of a line (seconds, MB)."""
    image = Image.new("RGB", _SIZE, "white")
    pen = ImageDraw.Draw(image)
    _bars(pen, speeds, top=20)
    _line(pen, memory, box=(90, 380, 860, 590))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def _bars(pen: ImageDraw.ImageDraw, speeds: Mapping[str, Sequence[float]], *, top: int) -> None:
    font = ImageFont.load_default(size=15)
    pen.text((20, top), "110 kB pictures into Cassandra, MB/s (a dot for each run)", fill=_INK, font=font)
    widest = max((max(runs) for runs in speeds.values() if runs), default=1.0)
    for number, (name, runs) in enumerate(speeds.items()):
        if not runs:
            continue
        y, scale = top + 40 + 52 * number, 520 / widest
        mean = sum(runs) / len(runs)
        pen.text((20, y + 6), name, fill=_INK, font=font)
        pen.rectangle((260, y, 260 + mean * scale, y + 30), fill=_BLUE if number == 0 else _LIGHT)
        for run in runs:
            x = 260 + run * scale
            pen.ellipse((x - 3, y + 12, x + 3, y + 18), fill=_INK)
        pen.text((270 + max(runs) * scale, y + 6), f"{mean:.1f}", fill=_INK, font=font)


def _line(pen: ImageDraw.ImageDraw, samples: Sequence[tuple[float, float]], *, box: tuple[int, int, int, int]) -> None:
    font = ImageFont.load_default(size=15)
    left, top, right, bottom = box
    pen.text((20, top - 40), "memory of one worker while pictures pass through, anonymous MB", fill=_INK, font=font)
    pen.rectangle(box, outline=_GREY)
    if len(samples) < 2:
        return
    begin, end = samples[0][0], samples[-1][0]
    highest = max(300.0, *(value for _, value in samples))
    points = [
        (left + (at - begin) / ((end - begin) or 1) * (right - left), bottom - value / highest * (bottom - top))
        for at, value in samples
    ]
    limit = bottom - 300 / highest * (bottom - top)
    pen.line([(left, limit), (right, limit)], fill=_GREY)
    pen.text((left - 36, limit - 8), "300", fill=_INK, font=font)
    pen.text((left - 16, bottom - 10), "0", fill=_INK, font=font)
    pen.text((right - 60, bottom + 8), f"{end - begin:.0f} s", fill=_INK, font=font)
    pen.line(points, fill=_BLUE, width=2)
