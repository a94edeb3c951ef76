"""The figures of splits that do not divide groups."""

import shutil
from collections.abc import Collection
from functools import partial
from operator import attrgetter

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.recount import contents, leaked_groups, split_contents, split_files
from benchmarks.harness.results import Row, tell
from benchmarks.splits.caches import plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import RATIOS, Run, SplitFixture
from benchmarks.splits.sizes import Sizes

NUMBERS = (9, 10)
COLUMN = "group_id"


def rows_of_groups(fixture: SplitFixture, sizes: Sizes, wanted: Collection[int]) -> dict[int, Row]:
    """Measure a split with groups against the same without, and count divided groups."""
    tell(f"{sizes.small:,} rows in {sizes.groups:,} groups")
    cache = plant(fixture.spark, fixture.folder / "cache-groups", rows=sizes.small, groups=sizes.groups)
    known = contents(cache.files)
    if sizes.warm:
        warm = plant(fixture.spark, fixture.folder / "cache-warm", rows=sizes.small // 10, groups=sizes.groups // 10)
        for column in (COLUMN, None):
            fixture.ours(warm, group_column=column)
        shutil.rmtree(warm.folder)
    counted: list[tuple[int, str]] = []

    def once(column: str | None) -> Run:
        run = fixture.ours(cache, group_column=column)
        if column and not counted:
            parts = split_contents(fixture.out, len(RATIOS), known=known)
            files = [split_files(fixture.out, number) for number in range(len(RATIOS))]
            counted.append((leaked_groups(cache.files, files), ", ".join(f"{part.rows:,}" for part in parts)))
        return run

    turns = sizes.group_pairs if 9 in wanted else 1
    contenders = {"groups": partial(once, COLUMN), "rows": partial(once, None)}
    runs = in_turn(turns, contenders, told=lambda name, run: f"{name}: {run.seconds:.1f} s")
    ((leaked, shares),) = counted
    shutil.rmtree(cache.folder)
    size = f"{sizes.note}{sizes.small:,} rows in {sizes.groups:,} groups of about {sizes.small // sizes.groups}, "
    size += "whose rows are of any class"
    return {
        9: FIGURES.ratio_row(9, *runs.values(), by=attrgetter("seconds"), note=f"{size}; in seconds"),
        10: FIGURES.value_row(10, leaked, note=f"{size}; counted from Parquet; splits of {shares} rows"),
    }
