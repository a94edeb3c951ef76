"""The figure of decoded pictures: our shards through DALI beside DALI's own reader of files."""

import statistics
import sys
from functools import partial

from benchmarks.harness.command import tell
from benchmarks.harness.courses import Course
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.stage import BUCKET, ShardStage
from benchmarks.shards.writing import OURS

NUMBERS = (8,)
SIZE = 224
THREADS = 2
BATCH = 64


def decoded(stage: ShardStage, decoder: str) -> Course:
    """One decoder once."""
    order = {"decoder": decoder, "images": stage.sizes.decoded, "batch_size": BATCH, "size": SIZE, "threads": THREADS}
    place = {"tree": str(stage.tree), "url": stage.server.endpoint, "shards": f"s3://{BUCKET}/{OURS}"}
    answer = stage.process(sys.executable, "shards.decoders:decode", {**order, **place})
    course = Course(answer["asked"], answer["got"], answer["counts"], answer["cpu"])
    tell(f"decoded from {decoder}: {course.cpu_ms:.2f} CPU ms an image, {course.rate:,.0f} images/s")
    return course


def rows_of_decoded(stage: ShardStage) -> dict[int, Row]:
    """Both in turn; the steady part counts, behind the first third."""
    decoders = ("shards", "files")
    runs = in_turn(stage.sizes.many_pairs, {decoder: partial(decoded, stage, decoder) for decoder in decoders})
    told = [
        f"{name} {statistics.median(run.cpu_ms for run in found):.2f} CPU ms an image, "
        f"{statistics.median(run.rate for run in found):,.0f} images/s"
        for name, found in runs.items()
    ]
    note = f"{'; '.join(told)}; {SIZE} pixels, {THREADS} threads"
    costs = ([1e3 / run.cpu_ms for run in found] for found in runs.values())
    return {8: FIGURES.ratio_row(8, *costs, note=note)}
