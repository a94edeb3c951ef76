"""Fields of feature views as columns of the metadata: for conditions, strata and groups of splits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.cassandra.tables import read_table
from etl.columns import column, ours
from etl.errors import TableError
from etl.expressions import fixed_settings, names_in
from etl.features.history import newest_of_images
from etl.tables.table_records import record_of
from schemas import TableName
from schemas.feature_sources import Sql
from schemas.features import FeatureView, ViewName, spark_type

LACKS = ours("lacks")
"""The column that `with_fields` adds for each view, `LACKS` and N: whether an image has no value of its bytes."""
_ID, _SHA256, _VALUES = ours("id"), ours("sha256"), ours("values")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a view that are wanted, and the table with their values."""

    view: FeatureView
    names: tuple[str, ...]
    table: TableName
    inputs: "tuple[Fields, ...]" = ()
    """For an on-demand view, which has no table, the fields that its expression has."""

    @property
    def stored(self) -> "tuple[Fields, ...]":
        """The views with the values."""
        return self.inputs if self.view.is_on_demand else (self,)


def find_fields(
    control: Control, metadata: TableName, *, names: Collection[str], pinned: Sequence[ViewName] = ()
) -> list[Fields]:
    """The views with values for a metadata table that these names are fields of, by name; names that no view has are
    left out. Of a ``pinned`` view, it is that version with all of its fields; of others the newest one with values.
    Raises `TableError` if a pinned view has no values for this table.
    """
    wanted = {one.name: one.version for one in pinned}
    found: dict[str, Fields] = {}
    without_values: dict[str, Fields] = {}  # their images may all be gone, or a run has just begun
    for view in registered_views(control, keyspace=metadata.keyspace):  # the newest first
        fields = tuple(name for name in view.fields if name in names or view.name in wanted)
        if view.name in found or wanted.get(view.name) not in (None, view.version):
            continue
        if not fields and view.name not in wanted:
            continue
        table = view.table_of(metadata)
        if isinstance(view.source, Sql):
            used = [ViewName.parse(title) for title in view.uses]
            inputs = find_fields(control, metadata, names=names_in(view.source.expression), pinned=used)
            found[view.name] = Fields(
                view, fields, table, inputs=tuple(one for one in inputs if one.view.title in view.uses)
            )
        elif control.columns(table) is not None:
            has_values = any(control.execute(f"SELECT id FROM {table.quoted} LIMIT 1"))
            (found if has_values else without_values).setdefault(view.name, Fields(view, fields, table))
    found = {**without_values, **found}
    if missing := [one for one in pinned if one.name not in found]:
        raise TableError(
            f"Wanted values of {missing[0]} for the images of {metadata}. Found: none. "
            f"{how_to_compute(missing[0], control=control, metadata=metadata)}"
        )
    return [found[name] for name in sorted(found)]


def how_to_compute(features: object, *, control: Control, metadata: TableName) -> str:
    """The command that computes features, named as on the command line: a sentence for messages."""
    record = record_of(control, metadata)
    data = "KEYSPACE.DATA_TABLE" if record is None else record.data_table
    return f"Compute them: spark-submit jobs/featurize.py -d {data} -m {metadata} --features {features}"


def metadata_columns(fields: Sequence[Fields]) -> set[str]:
    """The columns of the metadata that the expressions of on-demand views have."""
    return {
        name
        for one in fields
        if isinstance(one.view.source, Sql)
        for name in names_in(one.view.source.expression) - {name for used in one.inputs for name in used.names}
    }


def with_fields(rows: DataFrame, /, *, fields: Sequence[Fields], key: str, of_then: bool = False) -> DataFrame:
    """Add the fields of views to metadata rows with ``key``, a uuid as text, ``sha256`` if the table has it, and
    `metadata_columns`. A column `LACKS` and N says of the Nth view whether an image has no value of it, or one of other
    bytes than it has now. ``of_then``: rows can have the ``sha256`` of bytes that were replaced since, for which older
    values than an image's newest ones count.
    """
    has_digest = "sha256" in rows.columns
    for number, one in enumerate(fields):
        if isinstance(one.view.source, Sql):
            rows = _with_computed(
                rows, one=one, sql=one.view.source, key=key, lacks=f"{LACKS} {number}", of_then=of_then
            )
            continue
        columns = ["id", "sequence", "sha256", *one.names]
        values = read_table(rows.sparkSession, one.table, columns=columns)
        values = values.transform(newest_of_images, of="sha256" if of_then and has_digest else None)
        of_image = F.struct(*one.names).alias(_VALUES)
        values = values.select(F.col("id").alias(_ID), F.col("sha256").alias(_SHA256), of_image)
        is_same = F.col(_SHA256).eqNullSafe(F.col("sha256")) if has_digest else F.lit(True)
        is_of_row = F.col(key) == F.col(_ID)
        joined = rows.join(values, on=is_of_row & is_same if of_then else is_of_row, how="left")
        is_there = F.col(_ID).isNotNull() & is_same
        current = [F.when(is_there, F.col(f"{_VALUES}.{name}")).alias(name) for name in one.names]
        rows = joined.select(*map(column, rows.columns), *current, (~is_there).alias(f"{LACKS} {number}"))
    return rows


def _with_computed(rows: DataFrame, /, *, one: Fields, sql: Sql, key: str, lacks: str, of_then: bool) -> DataFrame:
    """Add the field of an on-demand view. Fields that its expression has may be in the rows in other versions."""
    inner = {name for used in one.inputs for name in used.names}
    hidden = {
        name: ours(f"hidden {n}") for n, name in enumerate(rows.columns) if name in inner or name.startswith(LACKS)
    }
    others = rows.select(*(column(name).alias(hidden.get(name, name)) for name in rows.columns))
    joined = with_fields(others, fields=one.inputs, key=key, of_then=of_then)
    is_lacking = reduce(or_, (F.col(f"`{LACKS} {n}`") for n in range(len(one.inputs))), F.lit(False))
    same = (column(hidden.get(name, name)).alias(name) for name in rows.columns)
    wanted = f"Wanted a session in which {one.view.title} has the values that it has in every other one."
    with fixed_settings(rows.sparkSession, wanted=wanted):
        computed = [F.expr(sql.expression).cast(spark_type(one.view.fields[name])).alias(name) for name in one.names]
        return joined.select(*same, *computed, is_lacking.alias(lacks))


def check_complete(
    rows: DataFrame, *, fields: Sequence[Fields], metadata: TableName, data: TableName
) -> tuple[DataFrame, tuple[str, ...]]:
    """Check, in a pass over rows of `with_fields`, that values of all images were computed; returns the rows without
    the columns `LACKS`, and a warning for each view whose value is null for some images. Raises `TableError`.
    """
    if not fields:
        return rows, ()
    lacks = [F.count_if(F.col(f"`{LACKS} {number}`")) for number in range(len(fields))]
    empty = [F.count_if(F.col(one.names[0]).isNull()) if one.names else F.lit(0) for one in fields]
    (counts,) = rows.agg(F.array(*lacks).alias("lacks"), F.array(*empty).alias("empty")).collect()
    lacking = [(number, one) for number, one in zip(counts["lacks"], fields, strict=True) if number]
    if lacking:
        stored = [used for _, one in lacking for used in one.stored]
        found = ", ".join(f"{number:,} images without {one.view.title}" for number, one in lacking)
        wanted = ", ".join(one.view.title for _, one in lacking)
        titles = ",".join(dict.fromkeys(used.view.title for used in stored))
        raise TableError(
            f"Wanted {wanted} of all images of {metadata}. Found: {found}. "
            f"Compute them: spark-submit jobs/featurize.py -d {data} -m {metadata} --features {titles}"
        )
    warnings = tuple(
        f"{number:,} images have no value of {one.view.title}: it is null, or could not be computed"
        for number, one in zip(counts["empty"], fields, strict=True)
        if number
    )
    return rows.drop(*(f"{LACKS} {number}" for number in range(len(fields)))), warnings
