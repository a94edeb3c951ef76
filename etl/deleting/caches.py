"""Metadata caches of splits: images are removed from them too."""

from pyspark.sql import DataFrame, SparkSession

from etl.columns import column
from etl.deleting.plan import DeletePlan
from etl.errors import TableError
from etl.splits.metadata import cache_folder, publish_cache, read_cache, summed_by_file
from etl.splits.metadata_reading import checked
from etl.splits.plan import SplitPlan


def clean_cache(spark: SparkSession, address: str, *, ids: DataFrame, plan: DeletePlan) -> int:
    """Write a metadata cache again without the images of these ids (16 bytes each); returns how many it had. Runs
    Spark. Raises `TableError` if there is no cache of the plan's tables, it is damaged, or nothing would be left of it,
    and `OutputExistsError` if the folder has other files.
    """
    of = SplitPlan(
        data_table=plan.data_table, metadata_table=plan.metadata_table, metadata_in=address, columns=plan.columns
    )
    metadata = checked(read_cache(spark, address, plan=of))
    gone = metadata.rows.join(ids, on="id", how="left_semi").count()
    if not gone:
        return 0
    left = metadata.rows.join(ids, on="id", how="left_anti").select(*map(column, metadata.rows.columns))
    with cache_folder(address, overwrite=True) as output:
        aside = output.aside("rows")
        left.write.option("compression", "zstd").parquet(aside)
        found = summed_by_file(spark.read.parquet(aside))
        if not found:
            raise TableError(f"Wanted other images in the metadata cache {address}. Found: none. Remove the folder.")
        publish_cache(output, metadata, summed=found)
    return gone
