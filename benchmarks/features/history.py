"""The figure of a point-in-time join, compared with an equi-join of the same rows."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.features.fixture import id_of, numbers, seconds_of, spark_session
from benchmarks.harness.figures import Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from etl.features.history import KnownValues, points_in_time

RUNS = 5
"""The values of an image: one of each of the runs 10, 20, ..."""
_STEP = 10


def rows_of_joins(folder: Path, figures: Figures, *, requests: int, values: int, pairs: int) -> dict[int, Row]:
    """Join requests with values alternately: each with the last one known then, or with those of the same run."""
    tell(f"{values:,} values of {values // RUNS:,} images, {requests:,} requests")
    images = values // RUNS
    with spark_session(folder) as spark:
        every = numbers(spark, values).select(
            id_of(F.floor(F.col("number") / RUNS)).alias("id"),
            ((F.pmod("number", F.lit(RUNS)) + 1) * _STEP).cast("long").alias("sequence"),
            F.current_timestamp().alias("event_timestamp"),
            F.col("number").alias("value"),
        )
        image = F.pmod(F.xxhash64("number"), F.lit(images))
        run = F.pmod(F.xxhash64("number", F.lit(1)), F.lit(RUNS)) + 1
        asked = numbers(spark, requests).select(
            id_of(image).alias("id"),
            (run * _STEP).cast("long").alias("sequence"),
            (image * RUNS + run - 1).alias("expected"),
        )
        for name, rows in (("values", every), ("requests", asked)):
            rows.repartition(8).write.parquet(f"file://{folder}/{name}")
        stored, wanted = (spark.read.parquet(f"file://{folder}/{name}") for name in ("values", "requests"))
        between = wanted.withColumn("sequence", F.col("sequence") + _STEP // 2)

        def measure_ours() -> float:
            known = [KnownValues(stored, ["value"])]
            return seconds_of(lambda: _check(points_in_time(between, views=known), requests))

        def measure_join() -> float:
            return seconds_of(lambda: _check(wanted.join(stored, on=["id", "sequence"], how="left"), requests))

        contenders = {"ours": measure_ours, "join": measure_join}
        in_turn(1, contenders)
        runs = in_turn(pairs, contenders, told=lambda name, seconds: f"{name}: {seconds:.1f} s")
    note = (
        f"{requests:,} requests between two runs, {values:,} values, {RUNS} of each image, in Parquet; the equi-join "
    )
    note += "by id and run, of requests at the run itself; all values checked; in seconds"
    return {6: figures.ratio_row(6, *runs.values(), note=note)}


def _check(found: DataFrame, requests: int) -> None:
    """Raise RuntimeError unless each request has the expected value."""
    wrong = F.count_if(~F.col("value").eqNullSafe(F.col("expected")))
    (row,) = found.agg(F.count("*").alias("rows"), wrong.alias("wrong")).collect()
    if (row["rows"], row["wrong"]) != (requests, 0):
        raise RuntimeError(f"Wanted {requests:,} requests with their values. Found: {row}")
