"""The figures of images with the highest values of each class, in one class and in many."""

import shutil
import time
from collections.abc import Callable, Collection
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.splits.baselines import sorted_top
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import SplitFixture
from benchmarks.splits.sizes import Sizes
from etl.splits.plan import Top
from etl.splits.top import take_top

NUMBERS = (14, 15)
_CLASSES = {14: 1, 15: 1_000}
_PERCENT = 10
_VALUES = 1_000_000


def rows_of_highest(fixture: SplitFixture, sizes: Sizes, wanted: Collection[int]) -> dict[int, Row]:
    """Take a tenth of each class in our way and by sorting. Raises RuntimeError if other images are taken."""
    return {number: _row(fixture, sizes, number) for number in sorted(wanted)}


def _row(fixture: SplitFixture, sizes: Sizes, number: int) -> Row:
    tell(f"{sizes.small:,} rows, {_CLASSES[number]:,} classes")
    folder = fixture.folder / "rows-highest"
    _metadata(fixture, rows=sizes.small, classes=_CLASSES[number]).write.parquet(f"file://{folder}")
    rows = fixture.spark.read.parquet(f"file://{folder}")
    found: set[tuple[object, ...]] = set()

    def once(make: Callable[[], DataFrame]) -> float:
        started = time.monotonic()
        sums = F.sum(F.xxhash64("id", "label", "value").cast("decimal(38,0)"))
        (taken,) = make().agg(F.count("*"), sums).collect()
        found.add(tuple(taken))
        return time.monotonic() - started

    ours = partial(take_top, rows, top=Top.parse(f"value={_PERCENT}%"))
    contenders = {"ours": partial(once, ours), "sorted": partial(once, partial(sorted_top, rows, percent=_PERCENT))}
    if sizes.warm:
        in_turn(1, contenders)
    runs = in_turn(sizes.pairs, contenders, told=lambda name, seconds: f"{name}: {seconds:.1f} s")
    shutil.rmtree(folder)
    if len(found) != 1:
        raise RuntimeError(f"Wanted the same images in each run. Found: {found}")
    note = f"{sizes.note}a tenth of each of {_CLASSES[number]:,} classes of {sizes.small:,} rows; in seconds"
    return FIGURES.ratio_row(number, *runs.values(), note=note)


def _metadata(fixture: SplitFixture, *, rows: int, classes: int) -> DataFrame:
    """Rows of ``id, label, value``; a tenth has no value, and about ten rows have the same one."""
    number = F.col("id")
    value = F.pmod(F.xxhash64(F.lit(2), number), F.lit(_VALUES)) / 1000.0
    return fixture.spark.range(0, rows, 1, -(-rows // 1_000_000)).select(
        F.unhex(F.md5(number.cast("string"))).alias("id"),
        F.pmod(F.xxhash64(F.lit(1), number), F.lit(classes)).cast("int").alias("label"),
        F.when(number % 10 != 3, value).alias("value"),
    )
