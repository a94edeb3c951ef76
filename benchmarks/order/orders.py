"""How exact the orders of classes are, how much memory they take, and how long it takes to find an image in one."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.processes import anonymous_mb, peak, run_process, worker
from benchmarks.harness.results import Row, tell
from benchmarks.order.figures import FIGURES
from formats.splits.cache import Arrays, Layout, cached_arrays
from formats.splits.folder import put_by_class
from loader.order.strata import Classes, Sampling, Strata, StratifiedOrder, classes_of

BATCH = 256
EPOCHS = 20
CLASSES = 1_000
_LIMIT_SECONDS = 900
_PIECE = 1 << 20
_QUERIES = 200


def zipf_labels(rows: int, classes: int) -> NDArray[np.int32]:
    """Class numbers by position: class c has 1/(c + 1) of the first one's images, in a mixed order."""
    shares = 1 / np.arange(1, classes + 1)
    counts = np.maximum(1, shares / shares.sum() * (rows - classes)).astype(np.int64)
    counts[0] += rows - counts.sum()
    labels = np.repeat(np.arange(classes, dtype=np.int32), counts)
    np.random.default_rng(0).shuffle(labels)
    return labels


def order_of(strata: Strata, epoch: int) -> StratifiedOrder:
    """The order of an epoch."""
    return StratifiedOrder(strata, fingerprint="benchmark", seed=1, epoch=epoch)


def rows_of_exactness(rows: int) -> dict[int, Row]:
    """Epochs counted image by image."""
    labels = zipf_labels(rows, CLASSES)
    classes = classes_of(labels)
    stratified, balanced = (Sampling(name, BATCH).strata(classes) for name in ("stratified", "balanced"))
    found = labels[order_of(stratified, 0)(np.arange(rows))]
    off = 0.0
    for start in range(0, rows, BATCH):
        batch = found[start : start + BATCH]
        counts = np.bincount(batch, minlength=CLASSES)
        off = max(off, float(np.abs(counts - classes.sizes * len(batch) / rows).max()))
    seen, spread, right = np.zeros(rows, dtype=np.int64), 0, 1.0
    for epoch in range(EPOCHS):
        times = np.bincount(order_of(balanced, epoch)(np.arange(rows)), minlength=rows)
        seen += times
        by_class = times[classes.positions], seen[classes.positions]
        low, high = (least.reduceat(by_class[0], classes.starts[:-1]) for least in (np.minimum, np.maximum))
        spread = max(spread, int((high - low).max()))
        whole, rest = np.divmod((epoch + 1) * balanced.dues, classes.sizes)
        whole, most = (np.repeat(one, classes.sizes) for one in (whole, whole + (rest > 0)))
        right = min(right, float(((by_class[1] >= whole) & (by_class[1] <= most)).mean()))
    note = f"{rows:,} images of {CLASSES:,} classes, Zipf; global batches of {BATCH}"
    return {
        1: FIGURES.value_row(1, off, note=note),
        2: FIGURES.value_row(2, spread, note=note),
        3: FIGURES.value_row(3, right, note=note),
    }


def mapped_labels(place: str, rows: int) -> tuple[NDArray[np.int32], dict[int, int]]:
    """Class numbers in a file, mapped into memory, and their counts."""
    path = Path(place) / "labels"
    labels = np.memmap(path, dtype=np.int32, mode="w+", shape=(rows,))
    counts = np.zeros(CLASSES, dtype=np.int64)
    numbers = np.random.default_rng(0)
    for start in range(0, rows, _PIECE):
        some = (CLASSES * numbers.random(min(_PIECE, rows - start)) ** 3).astype(np.int32)  # rare and common ones
        labels[start : start + _PIECE] = some
        counts += np.bincount(some, minlength=CLASSES)
    labels.flush()
    return labels, {number: count for number, count in enumerate(counts.tolist()) if count}


def use_large(order: dict[str, Any]) -> dict[str, Any]:
    """Open the classes of a large split, and read places of an epoch and places of images. Runs in a process."""
    rows, place = order["rows"], order["place"]
    labels, counts = mapped_labels(place, rows)
    before, opened = anonymous_mb(os.getpid()), time.monotonic()
    layout: Layout = {"by_class": ((rows,), np.uint32)}

    def fill(arrays: Arrays) -> None:
        if not put_by_class(labels, counts, arrays["by_class"]):
            raise RuntimeError("Wanted the counts of the labels. Found: others.")

    positions = cached_arrays(Path(place) / "cache", fingerprint="f", layout=layout, fill=fill)["by_class"]
    starts = np.cumsum([0, *counts.values()]).astype(np.int64)
    classes = Classes(labels, np.array([*counts], dtype=np.int32), starts, positions)
    found = order_of(Sampling("balanced", BATCH).strata(classes), 3)
    numbers = np.random.default_rng(1)
    for _ in range(50):
        places = numbers.integers(0, rows, 1 << 14)
        some = found(places)
        if found.places_of(int(some[0])).count(int(places[0])) != 1:
            raise RuntimeError("Wanted a place of an image. Found: it is not among its places.")
    queries = numbers.integers(0, rows, _QUERIES).tolist()
    began = time.monotonic()
    for position in queries:
        found.places_of(position)
    return {"seconds": time.monotonic() - began, "before": before, "opened": opened}


def rows_of_large(folder: Path, rows: int) -> dict[int, Row]:
    """Memory and queries of a large order, in a process whose memory is sampled."""
    place = folder / "large"
    place.mkdir()
    tell(f"an order of {rows:,} images")
    done = run_process(
        worker("order.orders:use_large", {"rows": rows, "place": str(place)}), limit=_LIMIT_SECONDS, look=anonymous_mb
    )
    answer = done.answer
    # The clock is the same for all processes.
    beyond = peak((at, value) for at, value in done.samples if at > answer["opened"]) - answer["before"]
    note = f"peak while the file of positions is written, too; mapped files do not count; {rows:,} images"
    milliseconds = 1e3 * answer["seconds"] / _QUERIES
    return {
        4: FIGURES.value_row(4, beyond, note=note),
        6: FIGURES.value_row(6, milliseconds, note=f"mean of {_QUERIES} images of a balanced epoch of {rows:,}"),
    }
