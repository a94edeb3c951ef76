"""The figure of a vector index while images come in: storing new vectors with the index, compared with without."""

import itertools
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.features.fixture import FeatureFixture, feature_fixture, id_of, seconds_of
from benchmarks.features.tables import FLOATS, VECTOR
from benchmarks.harness.figures import Figures
from benchmarks.harness.hashes import hash_digits
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.picture_rows import METADATA
from benchmarks.harness.results import Row, tell
from etl.cassandra.control import Control
from etl.cassandra.tables import append_rows, uuid_text
from etl.features.vectors.index import update_index
from etl.tables.metadata_table import MetadataTable
from schemas.features import cql_type
from schemas.tables import create_feature_values, create_shared


def rows_of_index(folder: Path, figures: Figures, *, vectors: int, new: int, pairs: int) -> dict[int, Row]:
    """Build an index, then store new vectors alternately with an update of the index and without."""
    values = VECTOR.table_of(METADATA)
    fields = {name: cql_type(kind) for name, kind in VECTOR.fields.items()}
    runs_table = create_shared("ingests", METADATA.keyspace)  # an update of an index is a run
    with feature_fixture(folder, create_feature_values(values, fields), runs_table) as fixture:
        _store(fixture, 0, vectors)
        building = seconds_of(lambda: _update(fixture, vectors))
        tell(f"index of {vectors:,} vectors of {FLOATS} floats: {building:.1f} s")
        starts = itertools.count(vectors, new)

        def store() -> None:
            _store(fixture, next(starts), new)

        def store_and_index() -> None:
            store()
            _update(fixture, new)

        def measure_without() -> float:
            seconds = seconds_of(store)
            _update(fixture, new)
            return seconds

        contenders = {"with": lambda: seconds_of(store_and_index), "without": measure_without}
        in_turn(1, contenders)
        runs = in_turn(pairs, contenders, told=lambda name, seconds: f"{name}: {1e3 * seconds / new:.1f} ms a vector")
    note = f"{new:,} new vectors at a time beside {vectors:,}, on the same cores; the index of all was built in "
    note += f"{building:.1f} s, {1e3 * building / vectors:.1f} ms a vector; in seconds; no target"
    return {7: figures.ratio_row(7, runs["with"], runs["without"], note=note)}


def _update(fixture: FeatureFixture, wanted: int) -> None:
    with Control.from_spark(fixture.spark) as control:
        found = update_index(MetadataTable.open(fixture.spark, control, METADATA), VECTOR)
    if found != wanted:
        raise RuntimeError(f"Wanted {wanted:,} vectors added to the index. Found: {found:,}")


def _store(fixture: FeatureFixture, start: int, count: int) -> None:
    append_rows(_rows(fixture, start, count), table=VECTOR.table_of(METADATA))


def _rows(fixture: FeatureFixture, start: int, count: int) -> DataFrame:
    """Vectors of random numbers."""
    known = fixture.spark.range(start, start + count, 1, 4).withColumn("key", id_of(F.col("id")))
    now = F.current_timestamp()
    return known.select(
        uuid_text("key").alias("id"),
        F.lit(0).cast("long").alias("sequence"),
        now.alias("event_timestamp"),
        now.alias("created_timestamp"),
        F.unhex(F.sha2("key", 256)).alias("sha256"),
        F.unhex(F.array_join(F.transform(F.sequence(F.lit(1), F.lit(FLOATS)), _number), "")).alias("embedding"),
    )


def _number(place: Column) -> Column:
    """A pseudo-random number from 0.5 to 2 or from -2 to -0.5, as the bytes of a float32 in hexadecimal."""
    digits = hash_digits("key", place)
    return F.concat(F.substring(digits, 1, 6), F.when(F.substring(digits, 7, 1) < "8", "3F").otherwise("BF"))
