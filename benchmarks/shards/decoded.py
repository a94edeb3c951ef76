"""The figure of decoded images: our shards through DALI, compared with DALI's own file reader."""

import statistics
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.harness.runs import Course, course_of
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.fixture import BUCKET, ShardFixture
from benchmarks.shards.writing import OURS, prepare

NUMBERS = (8,)
SIZE = 224
THREADS = 2
BATCH = 64


def decoded(fixture: ShardFixture, decoder: str) -> Course:
    """Run one decoder."""
    order = {"decoder": decoder, "images": fixture.sizes.decoded, "batch_size": BATCH, "size": SIZE, "threads": THREADS}
    place = {"tree": str(fixture.tree), "url": fixture.server.endpoint, "shards": f"s3://{BUCKET}/{OURS}"}
    return course_of(fixture.process("shards.decoders:decode", {**order, **place}))


def rows_of_decoded(fixture: ShardFixture) -> dict[int, Row]:
    """Both alternately; the steady part counts, after the first third."""
    prepare(fixture)
    contenders = {name: partial(decoded, fixture, name) for name in ("shards", "files")}
    runs = in_turn(fixture.sizes.many_pairs, contenders, told=lambda name, run: told(name, [run]))
    note = f"{'; '.join(told(name, found) for name, found in runs.items())}; {SIZE} pixels, {THREADS} threads"
    return {8: FIGURES.ratio_row(8, *runs.values(), by=lambda run: 1e3 / run.cpu_ms, note=note)}


def told(name: str, runs: Sequence[Course]) -> str:
    """Medians of some runs, for a note."""
    cpu_ms, rate = (statistics.median(map(attrgetter(value), runs)) for value in ("cpu_ms", "rate"))
    return f"{name} {cpu_ms:.2f} CPU ms an image, {rate:,.0f} images/s"
