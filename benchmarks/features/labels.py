"""The figure of labels as of an earlier version, compared with reading the table as it is."""

from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.features.fixture import FeatureFixture, feature_fixture, id_of, numbers, seconds_of
from benchmarks.harness.figures import Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.picture_rows import METADATA
from benchmarks.harness.results import Row, tell
from etl.cassandra.tables import read_table, uuid_text
from etl.features.relabelling import with_labels
from schemas import Columns
from schemas.features import FeatureView
from schemas.tables import create_feature_values, create_metadata

VERSIONS = 5
_CLASSES = 1000
_AS_OF = 3
"""The version that is read; later ones must not be seen."""


def rows_of_labels(folder: Path, figures: Figures, *, rows: int, pairs: int) -> dict[int, Row]:
    """Read all labels alternately: those of the third version of five, and those of the metadata table."""
    views = [
        FeatureView(
            name="label", version=number, fields={"label": "int"}, source="labels:x", digest="0" * 64, sequence=number
        )
        for number in range(VERSIONS, 0, -1)
    ]
    values = views[0].table_of(METADATA)
    statements = [create_metadata(METADATA, Columns()), create_feature_values(values, {"label": "int"})]
    with feature_fixture(folder, *statements) as fixture:
        tell(f"{rows:,} rows of metadata, with {VERSIONS} labels each")
        _fill(fixture, rows, views=views)
        fixture.settle()
        names = ["id", "label", "or_split", "path", "sha256"]

        def plain() -> DataFrame:
            return read_table(fixture.spark, METADATA, columns=names)

        def earlier() -> DataFrame:
            return with_labels(fixture.spark, plain(), METADATA, views[VERSIONS - _AS_OF :], columns=Columns())

        def measure(frame: DataFrame, version: int) -> float:
            wanted = sum((number + version) % _CLASSES for number in range(_CLASSES)) * (rows // _CLASSES)
            return seconds_of(lambda: _check(frame, rows=rows, labels=wanted))

        contenders = {"as of": lambda: measure(earlier(), _AS_OF), "plain": lambda: measure(plain(), 0)}
        in_turn(1, contenders)
        runs = in_turn(pairs, contenders, told=lambda name, seconds: f"{name}: {seconds:.1f} s")
    note = f"{rows:,} images in Cassandra on the same cores, {VERSIONS} versions with a label for each image: version "
    note += f"{_AS_OF} of them, and the rows of the metadata table; sums of labels checked; in seconds"
    return {5: figures.ratio_row(5, runs["as of"], runs["plain"], note=note)}


def _check(frame: DataFrame, *, rows: int, labels: int) -> None:
    (found,) = frame.agg(F.count("*").alias("rows"), F.sum("label").alias("labels")).collect()
    if (found["rows"], found["labels"]) != (rows, labels):
        raise RuntimeError(f"Wanted {rows:,} rows with labels of the sum {labels:,}. Found: {found}")


def _fill(fixture: FeatureFixture, rows: int, *, views: list[FeatureView]) -> None:
    known = numbers(fixture.spark, rows).withColumn("key", id_of(F.col("number")))
    image = known.select(uuid_text("key").alias("id"), F.unhex(F.sha2("key", 256)).alias("sha256"), "number")

    def label(version: int) -> Column:
        return F.pmod(F.col("number") + version, F.lit(_CLASSES)).cast("int").alias("label")

    path = F.concat(F.lit("train/"), "id", F.lit(".jpg")).alias("path")
    fixture.fill(METADATA, image.select("id", label(0), F.lit("").alias("or_split"), path, "sha256"))
    table = views[0].table_of(METADATA)
    for view in views:
        run = F.lit(view.sequence).cast("long").alias("sequence")
        now = F.current_timestamp().alias("event_timestamp")
        fixture.fill(table, image.select("id", run, now, label(view.version)))
