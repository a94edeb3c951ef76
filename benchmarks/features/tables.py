"""The figures of tables: a run with nothing to compute, and the bytes on disk of a vector for each image."""

import statistics
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.features.fixture import FeatureFixture, feature_fixture, id_of, numbers, seconds_of
from benchmarks.harness.figures import Figures
from benchmarks.harness.hashes import hash_digits
from benchmarks.harness.picture_rows import DATA, METADATA
from benchmarks.harness.results import Row, tell
from etl.cassandra.tables import uuid_text
from etl.features.computing.builtin import view_of
from etl.features.plan import FeatureRequest, FeaturizePlan
from etl.features.report import FeaturizeReport
from jobs import featurize
from schemas import Columns
from schemas.feature_sources import Python
from schemas.features import FeatureView, cql_type
from schemas.tables import create_data, create_feature_values, create_metadata

VIEWS = ("sharpness", "phash")
FLOATS = 512
VECTOR = FeatureView(
    name="embedding",
    version=1,
    fields={"embedding": f"float[{FLOATS}]"},
    source=Python("model", "embed"),
    digest="0" * 64,
)
PICTURES = 20_000
PICTURE_BYTES = 10_000
_RUNS = 3


def rows_of_tables(folder: Path, figures: Figures, *, rows: int) -> dict[int, Row]:
    """Fill the tables, run the job when nothing is missing, add vectors, and look at the files."""
    statements = [create_data(DATA, Columns()), create_metadata(METADATA, Columns())]
    for view in (*map(view_of, VIEWS), VECTOR):
        fields = {name: cql_type(kind) for name, kind in view.fields.items()}
        statements.append(create_feature_values(view.table_of(METADATA), fields))
    plan = FeaturizePlan(data_table=DATA, metadata_table=METADATA, features=tuple(map(FeatureRequest.parse, VIEWS)))
    with feature_fixture(folder, *statements) as fixture:
        tell(f"{rows:,} rows of metadata and of two features")
        _fill(fixture, rows)
        before = fixture.flush(DATA) | fixture.flush(METADATA)
        reports: list[FeaturizeReport] = []
        seconds = []
        for turn in range(_RUNS):
            seconds.append(seconds_of(lambda: reports.append(featurize.run(fixture.spark, plan=plan))))
            tell(f"{turn + 1}: nothing new, {seconds[-1]:.1f} s")
        if any(report.images for report in reports):
            raise RuntimeError(f"Wanted no image without values. Found: {reports[-1]}")
        tell(f"{rows:,} vectors of {FLOATS} floats")
        fixture.fill(VECTOR.table_of(METADATA), _vectors(fixture.spark, rows), batch=8)
        found = sum(size for _, size in fixture.flush(VECTOR.table_of(METADATA)).values())
        rewritten = before.items() ^ (fixture.files(DATA) | fixture.files(METADATA)).items()
    told = ", ".join(f"{one:.1f}" for one in seconds)
    note = f"{rows:,} rows of metadata and of each of two features in Cassandra on the same cores, Spark running; "
    nothing = figures.value_row(2, statistics.median(seconds), note=f"{note}median of {told}", runs=_RUNS)
    if not before or rewritten:
        raise RuntimeError(f"Wanted the files of images and metadata as they were. Found: {len(rewritten)} others.")
    own = rows * FLOATS * 4
    if found < own:
        raise RuntimeError(f"Wanted files with {own:,} bytes of random numbers. Found: {found:,} bytes.")
    note = f"{found / 1e6:,.0f} MB of SSTables with indexes and filters, after a flush, for {own / 1e6:,.0f} MB of "
    note += f"random numbers with id, run, times and SHA-256; each row was written once; no file of the {PICTURES:,} "
    note += "images and of the metadata has changed"
    return {2: nothing, 3: figures.value_row(3, found / own, note=note)}


def _fill(fixture: FeatureFixture, rows: int) -> None:
    known = numbers(fixture.spark, rows).withColumn("key", id_of(F.col("number")))
    image = known.select(uuid_text("key").alias("id"), F.unhex(F.sha2("key", 256)).alias("sha256"), "number")
    label = F.pmod("number", F.lit(1000)).cast("int")
    name = F.concat(F.lit("class "), label)
    metadata = image.select(
        "id",
        label.alias("label"),
        name.alias("or_label"),
        F.lit("train").alias("or_split"),
        F.concat(name, F.lit("/"), "id", F.lit(".jpg")).alias("path"),
        F.lit("JPEG").alias("format"),
        F.lit(500).alias("width"),
        F.lit(375).alias("height"),
        F.lit(110_000).cast("long").alias("bytes"),
        "sha256",
        F.lit("file:///data").alias("source"),
        F.current_timestamp().alias("ingested_at"),
    )
    fixture.fill(METADATA, metadata)
    blob = F.unhex(F.repeat(F.sha2("id", 256), PICTURE_BYTES // 32))
    few = image.where(F.col("number") < PICTURES).select("id", F.lit(0).alias("label"), blob.alias("data"))
    fixture.fill(DATA, few, batch=1)
    for view, value in zip(map(view_of, VIEWS), (F.rand(1).cast("float"), F.xxhash64("id")), strict=True):
        fixture.fill(view.table_of(METADATA), _values(image).withColumn(view.name, value))


def _values(image: DataFrame) -> DataFrame:
    """The columns that each value has."""
    now = F.current_timestamp()
    run = F.lit(0).cast("long").alias("sequence")
    return image.select("id", run, now.alias("event_timestamp"), now.alias("created_timestamp"), "sha256")


def _vectors(spark: SparkSession, rows: int) -> DataFrame:
    """Vectors of bytes that cannot be compressed, for all images."""
    known = numbers(spark, rows).withColumn("key", id_of(F.col("number")))
    image = known.select(uuid_text("key").alias("id"), F.unhex(F.sha2("key", 256)).alias("sha256"))
    words = F.transform(F.sequence(F.lit(1), F.lit(FLOATS // 2)), lambda word: hash_digits("id", word))
    return _values(image).withColumn("embedding", F.unhex(F.array_join(words, "")))
