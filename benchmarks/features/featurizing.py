"""The figure of computing features: our job, compared with decoding the same pictures and nothing else."""

import asyncio
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.features.fixture import CORES, FeatureFixture, feature_fixture, seconds_of
from benchmarks.harness.figures import Figures
from benchmarks.harness.pairs import in_turn, paired_ratio
from benchmarks.harness.picture_rows import DATA, KEYSPACE, METADATA, our_id
from benchmarks.harness.pictures import CLASSES, PHOTOGRAPHS, Images
from benchmarks.harness.results import Row, tell
from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import row_reader
from etl.features.computing.builtin import view_of
from etl.features.plan import FeatureRequest, FeaturizePlan
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from jobs import featurize, ingest

VIEWS = ("sharpness", "phash")
_CHUNK, _TASKS = 64, 4
_PIXELS = 500 * 375


def rows_of_featurizing(folder: Path, figures: Figures, *, pictures: int, pairs: int) -> dict[int, Row]:
    """Measure the job and the bare decode alternately, after a warm-up run of each."""
    tell(f"{pictures:,} photographs of 500 x 375 pixels")
    files = plant_photographs(folder / "photographs", pictures)
    plan = FeaturizePlan(data_table=DATA, metadata_table=METADATA, features=tuple(map(FeatureRequest.parse, VIEWS)))
    source = SourcePlan(address=str(folder / "photographs"))
    with (
        feature_fixture(folder) as fixture,
        ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool,
    ):
        ingest.run(fixture.spark, plan=IngestPlan(source=source, data_table=DATA, metadata_table=METADATA))
        fixture.settle()
        server = fixture.server
        cluster = Cluster(tuple(server.hosts), server.port, server.datacenter)
        ids = [our_id(f"{Path(file).parent.name}/{Path(file).name}").bytes for file in files]

        def measure_ours() -> float:
            for view in VIEWS:
                if list(fixture.control.execute(_THERE, (KEYSPACE, table_of(view)))):
                    fixture.control.execute(f"TRUNCATE {KEYSPACE}.{table_of(view)}", timeout=120)
            seconds = seconds_of(lambda: featurize.run(fixture.spark, plan=plan))
            _check(fixture, pictures)
            return seconds

        def measure_bare() -> float:
            chunks = [files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK)]
            return _decoding(lambda: pool.map(decode, chunks), pictures)

        def measure_read() -> float:
            read = partial(read_and_decode, cluster=cluster)
            return _decoding(lambda: pool.map(read, [ids[start::_TASKS] for start in range(_TASKS)]), pictures)

        contenders = {"ours": measure_ours, "decode": measure_bare, "read and decode": measure_read}
        in_turn(1, contenders)
        runs = in_turn(pairs, contenders, told=lambda name, seconds: f"{name}: {1e3 * seconds / pictures:.2f} ms")
    note = f"{pictures:,} JPEGs of 500 x 375 pixels and about 110 kB; ours reads them from Cassandra on the same "
    note += f"{CORES} cores and writes {' and '.join(VIEWS)}, Spark started before; the decode to RGB by Pillow in "
    note += f"{CORES} processes, from the page cache; in seconds. {_over_reading(runs)}"
    return {1: figures.ratio_row(1, runs["ours"], runs["decode"], note=note)}


def _over_reading(runs: Mapping[str, Sequence[float]]) -> str:
    ratio, (low, high) = paired_ratio(runs["ours"], runs["read and decode"])
    return f"Over reading the same pictures from the table and decoding them: {ratio:.2f} ({low:.2f} to {high:.2f})"


def _decoding(work: Callable[[], Iterable[int]], pictures: int) -> float:
    """The seconds of decoding. Raises RuntimeError unless all pixels were decoded."""
    found: list[int] = []
    seconds = seconds_of(lambda: found.extend(work()))
    if sum(found) != pictures * _PIXELS:
        raise RuntimeError(f"Wanted {pictures * _PIXELS:,} decoded pixels. Found: {sum(found):,}")
    return seconds


_THERE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"


def table_of(view: str) -> str:
    """The table of the values of a built-in view."""
    return f"metadata_{view}_v{view_of(view).version}"


def plant_photographs(root: Path, count: int) -> list[str]:
    """Write distinct photographs into class folders; return their paths."""
    images = Images("", kind=9, is_decodable=True)
    numbers = np.arange(count, dtype=np.int64)
    for number in range(CLASSES):
        (root / f"class_{number}").mkdir(parents=True)
    files = []
    for number, id in enumerate(map(bytes, images.ids(numbers))):
        files.append(str(root / f"class_{number % CLASSES}" / f"{id.hex()}.jpg"))
        Path(files[-1]).write_bytes(images.file(number, id))
    os.sync()
    return files


def decode(files: Sequence[str]) -> int:
    """Decode images to RGB; return their number of pixels."""
    return _pixels(Path(file).read_bytes() for file in files)


def _pixels(pictures: Iterable[bytes]) -> int:
    pixels = 0
    for data in pictures:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.convert("RGB").size
        pixels += width * height
    return pixels


def read_and_decode(ids: Sequence[bytes], *, cluster: Cluster) -> int:
    """Read images by id, some while others are decoded to RGB; return their number of pixels."""
    return asyncio.run(_read_and_decode(ids, cluster))


async def _read_and_decode(ids: Sequence[bytes], cluster: Cluster) -> int:
    pixels = 0
    async with row_reader(cluster, DATA, columns=("id", "data")) as read:
        chunks = [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
        reading = asyncio.gather(*map(read, chunks[0]))
        for chunk in (*chunks[1:], ()):
            found = await reading
            reading = asyncio.gather(*map(read, chunk))
            pixels += await asyncio.to_thread(_pixels, [row[0] for row in found if row is not None])
        await reading
    return pixels


def _check(fixture: FeatureFixture, pictures: int) -> None:
    """Raise RuntimeError unless each photograph has values, the same as its copies'."""
    for view in VIEWS:
        rows = list(fixture.control.execute(f"SELECT {view} FROM {KEYSPACE}.{table_of(view)}", timeout=120))
        values = {getattr(row, view) for row in rows}
        if len(rows) != pictures or None in values or len(values) > PHOTOGRAPHS:
            raise RuntimeError(
                f"Wanted {pictures:,} values of {PHOTOGRAPHS} photographs for {view}. Found: {len(rows):,}, "
                f"{len(values):,} of them different."
            )
