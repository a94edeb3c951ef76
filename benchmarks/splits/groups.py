"""The figures of splits that keep groups whole."""

import shutil
from collections.abc import Collection

from benchmarks.harness.command import tell
from benchmarks.harness.results import Row
from benchmarks.splits.caches import plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.recount import contents, leaked_groups, split_contents, split_files
from benchmarks.splits.sizes import Sizes
from benchmarks.splits.stage import RATIOS, Run, SplitStage

NUMBERS = (9, 10)
COLUMN = "group_id"


def rows_of_groups(stage: SplitStage, sizes: Sizes, wanted: Collection[int]) -> dict[int, Row]:
    """Measure a split with groups beside the same without, and count groups that are not whole."""
    tell(f"{sizes.small:,} rows in {sizes.groups:,} groups")
    cache = plant(stage.spark, stage.folder / "cache-groups", rows=sizes.small, groups=sizes.groups)
    known = contents(cache.files)
    runs: dict[str | None, list[Run]] = {COLUMN: [], None: []}
    if sizes.warm:
        warm = plant(stage.spark, stage.folder / "cache-warm", rows=sizes.small // 10, groups=sizes.groups // 10)
        for column in runs:
            stage.ours(warm, group_column=column)
        shutil.rmtree(warm.folder)
    leaked = 0
    for turn in range(sizes.group_pairs if 9 in wanted else 1):
        for column in (COLUMN, None) if turn % 2 == 0 else (None, COLUMN):
            runs[column].append(stage.ours(cache, group_column=column))
            tell(f"{turn + 1}: {'groups' if column else 'rows'}: {runs[column][-1].seconds:.1f} s")
            if column and turn == 0:
                parts = split_contents(stage.out, len(RATIOS), known=known)
                files = [split_files(stage.out, number) for number in range(len(RATIOS))]
                leaked = leaked_groups(cache.files, files)
                shares = ", ".join(f"{part.rows:,}" for part in parts)
    shutil.rmtree(cache.folder)
    size = f"{sizes.note}{sizes.small:,} rows in {sizes.groups:,} groups of about {sizes.small // sizes.groups}, "
    size += "whose rows are of any class"
    seconds = [[run.seconds for run in runs[column]] for column in (COLUMN, None)]
    rows = {
        9: FIGURES.ratio_row(9, *seconds, note=f"{size}; in seconds"),
        10: FIGURES.value_row(10, leaked, note=f"{size}; counted from Parquet; splits of {shares} rows"),
    }
    return rows
