"""The values of feature views beside a split: written by position, read back and checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from etl.errors import EtlError, TableError
from etl.splits.positions import added_up, fingerprint_sums
from formats.splits.features import field_fingerprint, is_numeric
from schemas import SplitFile, SplitPart
from schemas.features import FeatureView, spark_type, vector_length
from schemas.manifest import FeaturePart, StoredFeature

_FILE_BYTES = 256 << 20
_PARQUET = {"compression": "zstd", "parquet.enable.dictionary": "false", "parquet.block.size": str(8 << 20)}


def by_position(written: DataFrame, /, *, values: DataFrame, view: FeatureView) -> DataFrame:
    """The values of a view for each image of splits, ``split, id, position``: ``split, position`` and the fields,
    sorted in each partition.
    """
    width = sum(4 * (vector_length(kind) or 2) for kind in view.fields.values())
    chunk = F.floor(F.col("position") / max(1, _FILE_BYTES // width))
    return (
        written.select("id", "split", "position")
        .join(values.select("id", *view.fields), on="id")
        .select("split", "position", *view.fields)
        .repartition("split", chunk)
        .sortWithinPartitions("split", "position")
    )


def write_values(spark: SparkSession, rows: DataFrame, *, view: FeatureView, address: str) -> list[Row]:
    """Write rows of `by_position` to Parquet files, read them back, and sum them up by split: ``rows``, and for each
    field ``lacking`` (unusable values) and the sums of its fingerprint.
    """
    rows.write.partitionBy("split").options(**_PARQUET).parquet(address)
    fields = ", ".join(f"`{name}` {spark_type(kind)}" for name, kind in view.fields.items())
    found = spark.read.schema(f"position BIGINT, {fields}, split INT").parquet(address)
    sums = [F.struct(*fingerprint_sums("position", name)).alias(name) for name in view.fields]
    lacking = [F.count_if(_is_lacking(name, kind)).alias(name) for name, kind in view.fields.items()]
    counts = F.struct(*lacking).alias("lacking")
    return found.groupBy("split").agg(F.count("*").alias("rows"), counts, *sums).collect()


def _is_lacking(name: str, kind: str) -> Column:
    if not is_numeric(kind):
        return F.lit(False)
    length = vector_length(kind)
    column = F.col(name)
    return column.isNull() if length is None else F.coalesce(F.length(column) != 4 * length, F.lit(True))


def stored_feature(
    view: FeatureView, summed: Sequence[Row], *, parts: Sequence[SplitPart], files: Mapping[int, Sequence[SplitFile]]
) -> StoredFeature:
    """The manifest's entry for a view, from what `write_values` returned. Raises `TableError` if images have no value
    of a number or a vector, `EtlError` if the files have other numbers of rows than the splits.
    """
    by_split: dict[int, Any] = {row["split"]: row for row in summed}
    for name in view.fields:
        if lacking := sum(row["lacking"][name] for row in by_split.values()):
            raise TableError(
                f"Wanted {name} ({view.title}) of all images of the split, to store it there. Found: {lacking:,} "
                f"images for which it could not be computed, or is null. Leave them out: --where '{name} IS NOT NULL'. "
                "featurize.py --retry computes failed values again."
            )
    found = []
    for part in parts:
        rows = by_split[part.index]["rows"] if part.index in by_split else 0
        in_files = sum(file.rows for file in files.get(part.index, ()))
        if not rows == in_files == part.rows:
            raise EtlError(
                f"Wanted {part.rows:,} values of {view.title} for split {part.index}. Found: {rows:,}, and "
                f"{in_files:,} rows in the files."
            )
        prints = {
            name: field_fingerprint(
                split=part.fingerprint,
                view=view.title,
                field=name,
                kind=kind,
                rows=rows,
                sums=added_up([by_split[part.index][name].asDict()] if rows else []),
            )
            for name, kind in view.fields.items()
        }
        of_part = tuple(sorted(files.get(part.index, ()), key=lambda file: file.path))
        found.append(FeaturePart(fingerprints=prints, files=of_part))
    return StoredFeature(view=view.title, fields=dict(view.fields), splits=tuple(found))
