"""The images that take part in a split: conditions, exclusions, and the splits that some are in already."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import TableError
from etl.splits.candidates import label_set, leave_out, stay, stay_together, take_part
from etl.splits.leaks import WATCHED
from etl.splits.metadata import Metadata
from etl.splits.plan import LABELS, SplitPlan, SplitRef
from formats import SplitFolder
from formats.storage import Storage
from jobs.frames import small_table


def candidates(spark: SparkSession, metadata: Metadata, *, plan: SplitPlan, by: Sequence[str]) -> DataFrame:
    """The rows that take part, as `etl.splits.candidates` has them, with the columns ``by`` which they are shared out.

    Raises `TableError` for columns that are not there, for a condition that is none; `FormatsError` for other splits
    that cannot be read.
    """
    rows = metadata.rows
    for name in (*by, plan.group_column, *(pin.column for pin in plan.pins)):
        if name is not None and name not in rows.columns:
            raise TableError(
                f"Wanted the column {name} in the metadata of {metadata.metadata_table}. "
                f"Found: {', '.join(rows.columns)}."
            )
    if plan.where:
        _check_condition(rows, plan.where)
    if LABELS in by:
        rows = rows.withColumn(LABELS, label_set())
    watched = [name for name in WATCHED.values() if plan.has_leak_check and name in rows.columns and name not in by]
    keep = [*(name for name in by if name != "label"), *watched]
    part = rows.transform(take_part, where=plan.where, group_column=plan.group_column, pins=plan.pins, keep=keep)
    for ref in plan.exclude:
        part = part.transform(leave_out, others=split_rows(spark, ref))
    if plan.extend:
        part = part.transform(stay, old=split_rows(spark, SplitRef(plan.extend)))
    if plan.group_column and "fixed" in part.columns:
        part = part.transform(stay_together)
    return part


def is_plain(plan: SplitPlan) -> bool:
    """Whether the candidates are just the rows of the metadata, so that it is no work to read them several times."""
    return not (plan.where or plan.exclude or plan.extend or plan.pins)


def split_rows(spark: SparkSession, ref: SplitRef) -> DataFrame:
    """The images of a split folder, or of one of its splits: ``id, split``. Raises `FormatsError`, `TableError`."""
    folder = SplitFolder.open(ref.address)
    parts = folder.manifest.splits
    if ref.index is not None and ref.index >= len(parts):
        raise TableError(f"Wanted split {ref.index} of {folder.address}. Found: splits 0 to {len(parts) - 1}.")
    storage = Storage(ref.address)
    found = small_table(spark, {"id": [], "split": []}, "id BINARY, split INT")
    for part in parts if ref.index is None else [parts[ref.index]]:
        if paths := [storage.url(file.path) for file in part.files]:
            found = found.union(spark.read.parquet(*paths).select("id", F.lit(part.index).alias("split")))
    return found


def _check_condition(rows: DataFrame, where: str) -> None:
    """Raises `TableError` for a condition that these rows cannot answer, or that answers differently each time."""
    wanted = f"Wanted a condition over the columns {', '.join(rows.columns)} for --where."
    try:
        chosen = rows.where(F.expr(where))
    except (AnalysisException, ParseException) as error:
        raise TableError(f"{wanted} Found: {where!r}: {str(error).splitlines()[0]}") from None
    condition = chosen._jdf.queryExecution().analyzed().condition()
    if not condition.deterministic():
        raise TableError(f"{wanted} Found: {where!r}, whose answer changes from run to run.")
