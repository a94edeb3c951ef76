"""A job that loads the classes of Spark that ours use, for the archive of `spark_start`."""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F


def _use(spark: SparkSession, folder: Path) -> None:
    """Read and write files, and shuffle, sort, join and rank rows, also in Python."""
    sha = F.sha2(F.col("id").cast("string"), 256)
    rows = spark.range(1000).select("id", (F.col("id") % 7).alias("of"), sha.alias("sha"))
    rows.write.partitionBy("of").parquet(str(folder / "rows"))
    rows.limit(10).write.json(str(folder / "json"))
    rows.limit(10).write.csv(str(folder / "csv"), header=True)
    stored = spark.read.parquet(str(folder / "rows"))
    counts = stored.groupBy("of").agg(F.count("*").alias("n"), F.collect_list("id"), F.min("sha"))
    ranked = stored.withColumn("rank", F.row_number().over(Window.partitionBy("of").orderBy("sha")))
    joined = ranked.join(F.broadcast(counts), "of").join(stored.select("id"), "id", "left_anti")
    same: DataFrame = stored.mapInArrow(lambda batches: batches, stored.schema)
    for frame in (joined, same.orderBy("id"), same.cache(), spark.read.json(str(folder / "json")).distinct()):
        frame.toPandas()
    spark.read.csv(str(folder / "csv")).count()
    same.rdd.mapPartitions(lambda found: [sum(1 for _ in found)]).sum()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        session = SparkSession.builder.getOrCreate()
        _use(session, Path(temporary))
        session.stop()
