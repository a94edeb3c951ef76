"""The figure of labels as of an earlier version, compared with reading the table as it is."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from benchmarks.features.fixture import feature_fixture, id_of, numbers, seconds_of
from benchmarks.harness.figures import Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.picture_rows import METADATA
from benchmarks.harness.results import Row, tell
from etl.cassandra.tables import read_table, uuid_text
from etl.labels.versions import REPLACED, LabelVersions, with_labels
from schemas import Columns
from schemas.feature_sources import Labels
from schemas.features import FeatureView
from schemas.tables import add_columns, create_label_values, create_metadata

VERSIONS = 5
_CLASSES = 1000
_NAMES = ["id", "label", "or_split", "path", "sha256"]
_AS_OF = 3
"""The version that is read; later ones must not be seen."""


def rows_of_labels(folder: Path, figures: Figures, *, rows: int, pairs: int) -> dict[int, Row]:
    """Read all labels alternately: those of the third version of five, and those of the metadata table."""
    views = [
        FeatureView(
            name="label", version=number, fields={"label": "int"}, source=Labels("x"), digest="0" * 64, sequence=number
        )
        for number in range(VERSIONS, 0, -1)
    ]
    values = views[0].table_of(METADATA)
    added = [add_columns(values, view.label_columns) for view in views]
    statements = [create_metadata(METADATA, Columns()), create_label_values(values), *added]
    with feature_fixture(folder, *statements) as fixture:
        tell(f"{rows:,} rows of metadata, with {VERSIONS} labels each")
        images = _images(fixture.spark, rows)
        fixture.fill(METADATA, images.withColumn("label", _label(0)).select(*_NAMES))
        bucket = F.conv(F.substring("id", 1, 3), 16, 10).cast("int").alias("bucket")  # schemas.tables.label_bucket
        seen = [name for one in views for name in one.label_columns]
        labels = [column for one in views for column in (_label(one.version), F.col("sha256"), _label(0))]
        named = [column.alias(name) for column, name in zip(labels, seen, strict=True)]
        fixture.fill(values, images.select(bucket, "id", *named))
        fixture.settle()
        wanted = {number: _contents(images.withColumn("label", _label(number))) for number in (0, _AS_OF)}

        def plain() -> DataFrame:
            return read_table(fixture.spark, METADATA, columns=_NAMES)

        def earlier() -> DataFrame:
            versions = LabelVersions(
                metadata=METADATA, views=tuple(views[VERSIONS - _AS_OF :]), recorded=frozenset(seen)
            )
            return plain().transform(with_labels, versions=versions, columns=Columns()).drop(REPLACED)

        def measure(read: Callable[[], DataFrame], version: int) -> float:
            found: list[SparkRow] = []
            seconds = seconds_of(lambda: found.append(_contents(read())))
            if found[0] != wanted[version]:
                raise RuntimeError(f"Wanted the rows {wanted[version]} of version {version}. Found: {found[0]}")
            return seconds

        contenders = {"as of": lambda: measure(earlier, _AS_OF), "plain": lambda: measure(plain, 0)}
        in_turn(1, contenders)
        runs = in_turn(pairs, contenders, told=lambda name, seconds: f"{name}: {seconds:.1f} s")
    note = f"{rows:,} images in Cassandra on the same cores, {VERSIONS} versions with a label for each image: version "
    note += f"{_AS_OF} of them, and the rows of the metadata table, both with {', '.join(_NAMES)}; all rows checked; "
    note += "in seconds"
    return {5: figures.ratio_row(5, runs["as of"], runs["plain"], note=note)}


def _contents(rows: DataFrame) -> SparkRow:
    """The number of rows and the exclusive or of their hashes, for which Spark reads all columns."""
    hashes = F.bit_xor(F.xxhash64(*_NAMES)).alias("hashes")
    (found,) = rows.agg(F.count("*").alias("rows"), hashes).collect()
    return found


def _images(spark: SparkSession, rows: int) -> DataFrame:
    known = numbers(spark, rows).withColumn("key", id_of(F.col("number")))
    image = known.select(uuid_text("key").alias("id"), F.unhex(F.sha2("key", 256)).alias("sha256"), "number")
    path = F.concat(F.lit("train/"), "id", F.lit(".jpg")).alias("path")
    return image.select("*", F.lit("").alias("or_split"), path)


def _label(version: int) -> Column:
    return F.pmod(F.col("number") + version, F.lit(_CLASSES)).cast("int").alias("label")
