"""The pictures of two pages, drawn from orders that the loader computes: ``python docs/pictures.py`` writes them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from loader.order.schedule import Schedule
from loader.order.strata import Classes, Sampling

FOLDER = Path(__file__).resolve().parent / "how-to"
_SIDE, _STEP, _LEFT = 14, 16, 130  # of a square, from one to the next, and of the names beside them, in pixels
_COLOURS = ("#0969da", "#9a6700", "#cf222e")
_PALE, _INK = "#d0d7de", "#57606a"
_SIZES, _BATCH, _COLUMNS = (168, 48, 24), 10, 24  # images of three classes; batches that are drawn
_ROWS, _EPOCHS, _IMAGE = 960, 4, 7


def schedule(name: str) -> Schedule:
    """The order of three classes."""
    labels = np.repeat(np.arange(3, dtype=np.int32), _SIZES)
    starts = np.concatenate([[0], np.cumsum(_SIZES)]).astype(np.int64)
    classes = Classes(labels, np.arange(3, dtype=np.int32), starts, np.arange(len(labels), dtype=np.int64))
    sampling = {"shuffled": None}.get(name, Sampling(name, _BATCH))  # type: ignore[arg-type]
    return Schedule(
        fingerprint="f" * 64, rows=len(labels), seed=1, shuffle=True, batch_size=_BATCH, rank=0, world_size=1,
        last_batch_policy="PARTIAL", sampling=sampling, classes=classes,
    )  # fmt: skip


def squares(places: Iterable[tuple[int, float, str]]) -> Iterator[str]:
    """The squares of a grid (column, row and colour), as one path for each colour."""
    paths: dict[str, list[str]] = {}
    for column, row, colour in places:
        corner = f"M{_LEFT + column * _STEP} {row * _STEP:g}"
        paths.setdefault(colour, []).append(f"{corner}h{_SIDE}v{_SIDE}h-{_SIDE}z")
    return (f'<path fill="{colour}" d="{"".join(path)}"/>' for colour, path in sorted(paths.items()))


def text(x: float, y: float, words: str) -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" fill="{_INK}">{words}</text>'


def svg(title: str, width: int, height: float, lines: Iterator[str]) -> str:
    """A picture whose title says what it shows."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img" font-size="13"'
    return "\n".join([f'{head} font-family="sans-serif">', f"<title>{title}</title>", *lines, "</svg>"]) + "\n"


def balance() -> str:
    """The classes of the images of each batch, in three orders."""
    labels = np.repeat(np.arange(3), _SIZES)

    def lines() -> Iterator[str]:
        for number, name in enumerate(("shuffled", "stratified", "balanced")):
            top = number * (_BATCH + 1.5)
            yield text(0, (top + _BATCH / 2) * _STEP + 5, name)
            batches = [sorted(labels[step.positions].tolist()) for step in islice(schedule(name).steps(0), _COLUMNS)]
            yield from squares(
                (column, top + row, _COLOURS[label])
                for column, batch in enumerate(batches)
                for row, label in enumerate(batch)
            )

    title = (
        "Batches of ten images of three classes of 168, 48 and 24 images, in shuffled, stratified and balanced order"
    )
    height = (3 * (_BATCH + 1.5) - 1) * _STEP
    return svg(title, _LEFT + _COLUMNS * _STEP, height, lines())


def seen() -> str:
    """At which steps an image was seen: four epochs, the last two with batches of another size."""
    sizes = (_ROWS // 24, _ROWS // 24, _ROWS // 16, _ROWS // 16)

    def lines() -> Iterator[str]:
        for epoch, size in enumerate(sizes):
            plan = Schedule(
                fingerprint="e" * 64, rows=_ROWS, seed=0, shuffle=True, batch_size=size, rank=0, world_size=1,
                last_batch_policy="PARTIAL",
            )  # fmt: skip
            yield text(0, (1.5 * epoch + 0.75) * _STEP, f"epoch {epoch}, run {int(epoch > 1)}")
            at = {step for _, step, _ in plan.where(*plan.places_of([epoch], _IMAGE))}
            steps = range(-(-_ROWS // size))
            yield from squares((step, 1.5 * epoch, _COLOURS[2] if step in at else _PALE) for step in steps)

    title = "Four epochs of steps, of which one in each has the image; after a resume, the steps are larger and fewer"
    return svg(title, _LEFT + 24 * _STEP, 1.5 * _EPOCHS * _STEP, lines())


PICTURES = {"balance.svg": balance, "which-step.svg": seen}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
