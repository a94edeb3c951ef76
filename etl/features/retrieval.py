"""The values of features: of all images, of some images by id, and as they were known at a point in time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.registry import check_view_name, label_views_of
from etl.cassandra.tables import read_table, uuid_bytes, uuid_text
from etl.columns import column, ours
from etl.errors import TableError
from etl.features.columns import Fields, find_fields
from etl.features.history import KnownValues, newest_of_images, points_in_time, values_of_bytes
from etl.features.services import with_services
from etl.labels.versions import LabelVersions, known_state, label_values, label_views, states_in_time
from etl.tables.metadata_table import MetadataTable
from schemas import Columns, TableName
from schemas.features import FeatureView, ViewName, parse_feature, vector_length
from schemas.tables import check_column

TIMES = ("sequence", "event_timestamp", "created_timestamp")
"""The run that wrote an image's bytes, that run's clock, and when the value was computed."""

_STATE = {"label": ours("ingested"), "sha256": ours("sha256"), "since": ours("since")}
"""The columns with the label that an image was ingested with, the SHA-256 of the bytes that it had, and since when."""
_KEY = ours("key")


def current_values(table: MetadataTable, view: FeatureView) -> DataFrame:
    """The values that the images of a table have now: ``id`` (16 bytes), the columns of `TIMES` and the fields, a row
    for each image whose value was computed from the bytes that it has now; without those that an interrupted deletion
    left. Fields are null if they could not be computed.
    """
    values = read_table(table.spark, view.table_of(table.name), columns=["id", *TIMES, "sha256", *view.fields])
    values = values.transform(newest_of_images).withColumn("id", uuid_bytes("id"))
    image, now = ours("image"), ours("sha256")
    images, _ = table.without_half_deleted(table.rows(["sha256"]))
    images = images.withColumnsRenamed({"id": image, "sha256": now})
    is_same = F.col("id") == F.col(image)
    if "sha256" in table.fields:
        is_same &= F.col("sha256").eqNullSafe(F.col(now))
    return values.join(images, on=is_same).select("id", *TIMES, *view.fields)


def online_features(
    control: Control,
    ids: Iterable[UUID],
    *,
    metadata: TableName,
    views: Sequence[str],
    columns: Columns | None = None,
) -> list[dict[str, Any]]:
    """The values of some images, by id. Feast calls this ``get_online_features``.

    Args:
        control: A session: ``with Control.from_spark(spark) as control``.
        ids: The ids of the images.
        metadata: The metadata table.
        views: The feature views, as ``NAME`` (the newest version with values) or ``NAME@vN``, or feature services, as
            ``service:NAME`` or ``service:NAME@vN``.
        columns: The names of the metadata table's columns.

    Returns:
        For each id in its order, ``id`` and the fields of all views; vectors are float32 arrays. A value is None if it
        could not be computed, was not computed yet for the bytes that the image has now, or there is no such image.

    Raises:
        TableError: A view has no values for this table, or is computed when it is read.
        UnreachableError: The servers did not answer.
    """
    wanted = list(ids)
    keys = [(one,) for one in wanted]
    of_image = check_column((columns or Columns()).id)
    has_digest = "sha256" in (control.columns(metadata) or {})
    digest = ', "sha256"' if has_digest else ""
    query = f'SELECT "{of_image}"{digest} FROM {metadata.quoted} WHERE "{of_image}" = ?'
    images = list(control.execute_all(query, keys))
    found: list[dict[str, Any]] = [{"id": one} for one in wanted]
    features, _ = with_services(control, list(map(parse_feature, views)), keyspace=metadata.keyspace)
    for one in _stored_fields(control, metadata, features):
        fields = one.view.fields
        names = ", ".join(f'"{name}"' for name in fields)
        query = f'SELECT "sha256", {names} FROM {one.table.quoted} WHERE id = ? LIMIT 1'  # the newest is the first
        for values, image, newest in zip(found, images, control.execute_all(query, keys), strict=True):
            is_there = bool(image and newest) and (not has_digest or image[0].sha256 == newest[0].sha256)
            row = newest[0][1:] if is_there else [None] * len(fields)
            values |= {name: _shown(kind, value) for (name, kind), value in zip(fields.items(), row, strict=True)}
    return found


def _stored_fields(control: Control, metadata: TableName, views: Sequence[ViewName]) -> list[Fields]:
    found = find_fields(control, metadata, names=(), pinned=views)
    view_of: dict[str, str] = {}
    for title, name in ((one.view.title, name) for one in found for name in one.view.fields):
        if (other := view_of.setdefault(name, title)) != title:  # of an earlier version
            raise TableError(f"Wanted each field once. Found: {name} of {other} and of {title}. Read them separately.")
    if later := [one.view for one in found if one.view.is_on_demand]:
        raise TableError(
            f"Wanted features with stored values. Found: {later[0].title}, which is computed when it is read, from "
            f"{', '.join(later[0].uses) or 'the metadata'}. Read these instead."
        )
    return found


def _shown(kind: str, value: Any) -> Any:
    is_vector = vector_length(kind) is not None and value is not None
    return np.frombuffer(value, "<f4") if is_vector else value


def historical_features(
    spark: SparkSession,
    requests: DataFrame | pd.DataFrame,
    *,
    metadata: TableName,
    views: Sequence[str],
    known: Literal["bytes", "computed"] = "bytes",
    columns: Columns | None = None,
) -> DataFrame:
    """Add to each request the values of the bytes that the image had then. Feast: ``get_historical_features``.

    Args:
        spark: The session.
        requests: ``id`` (a UUID, as text or as its 16 bytes) and ``sequence`` (of a run: the state of the image after
            it) or ``at`` (a timestamp: the state after the last run that began by then; without a time zone, UTC), and
            other columns. If it has both, ``sequence`` decides.
        metadata: The metadata table.
        views: The feature views, as ``NAME`` (the newest version with values) or ``NAME@vN``; feature services, as
            ``service:NAME`` or ``service:NAME@vN``; or label views, whose values are class numbers: of the version that
            was the newest then, or if it does not name the image, or other bytes of it, those that the image was
            ingested with; null if they were deleted with the image.
        known: ``bytes`` for values of the bytes of then, whenever they were computed; ``computed`` for those that were
            computed by then, so that the result is what a model could have used at that time. This needs ``at``.
        columns: The names of the metadata table's columns.

    Returns:
        The requests, each once, in any order, with the fields of all views. A value is null if none was computed from
        the bytes that the image had then, or the image did not exist.

    Raises:
        TableError: A view has no values for this table or is computed when it is read, a column of the requests is
            missing, has another type or the name of a field, or ``columns`` do not name the labels.
    """
    if isinstance(requests, pd.DataFrame):
        requests = _of_pandas(spark, requests)
    kinds = _check_requests(requests, known=known)
    with Control.from_spark(spark) as control:
        wanted_views, _ = with_services(control, list(map(parse_feature, views)), keyspace=metadata.keyspace)
        of_labels = [view for view in wanted_views if label_views(control, metadata, name=view.name)]
        for view in of_labels:  # an earlier version took the name of a feature view
            check_view_name(control, view.name, keyspace=metadata.keyspace, kind=label_views_of(metadata))
        stored = _stored_fields(control, metadata, [view for view in wanted_views if view not in of_labels])
        table = MetadataTable.open(spark, control, metadata, columns=columns or Columns())
        states = [KnownValues(states_in_time(table).withColumnsRenamed(_STATE), list(_STATE.values()))]
        values_of = {view.name: label_values(table, view) for view in of_labels}
        labels = [KnownValues(values, versions.names) for values, versions in values_of.values()]
    names = [*(view.name for view in of_labels), *(name for one in stored for name in one.view.fields)]
    if taken := [name for name in names if name in kinds]:
        raise TableError(f"Wanted requests without the column {taken[0]}, which is a field of a view. Rename it.")
    if kinds["id"] == "string":
        packed = uuid_bytes("id")  # other texts stay as they are, and have no values
        requests = requests.withColumn("id", F.when(F.length(packed) == 16, uuid_text(packed)).otherwise(F.col("id")))
        found = requests.transform(points_in_time, views=[*states, *labels]).withColumn(_KEY, uuid_bytes("id"))
    else:
        binary = [replace(one, values=one.values.withColumn("id", uuid_bytes("id"))) for one in [*states, *labels]]
        found = requests.transform(points_in_time, views=binary).withColumn(_KEY, F.col("id"))
    for one in stored:
        found = _with_values(found, one, spark=spark, by_digest="sha256" in table.fields, known=known)
    shown = {name: _label_then(versions).alias(name) for name, (_, versions) in values_of.items()}
    return found.select(*(shown.get(name, column(name)) for name in (*kinds, *names)))


def _label_then(versions: LabelVersions) -> Column:
    """The label that an image had with the state in the columns of `_STATE`."""
    state = {name: F.col(new) for name, new in _STATE.items()}
    is_forgotten = versions.forgotten.isNotNull() & (state["since"] < versions.forgotten)
    ingested = F.when(~is_forgotten, state["label"])  # unknown is what was deleted with an image
    return F.coalesce(versions.correction(now=known_state(**state))["label"], ingested)


def _of_pandas(spark: SparkSession, requests: pd.DataFrame) -> DataFrame:
    """Requests as a DataFrame of Spark. Raises `TableError` if there are none."""
    if requests.empty:
        raise TableError("Wanted at least one request. Found: an empty table.")
    if "id" in requests and isinstance(requests["id"].iloc[0], UUID):
        requests = requests.assign(id=requests["id"].map(str))
    if "at" in requests and pd.api.types.is_datetime64_dtype(requests["at"]):  # without a time zone
        requests = requests.assign(at=requests["at"].dt.tz_localize("UTC"))
    return spark.createDataFrame(requests)


def _check_requests(requests: DataFrame, *, known: str) -> dict[str, str]:
    """The types of the columns of requests. Raises `TableError` if some are missing or wrong."""
    kinds = dict(requests.dtypes)
    wanted = {"id": ("string", "binary"), "sequence": ("int", "bigint"), "at": ("timestamp",)}
    wrong = [f"{name} {kinds[name]}" for name in wanted if name in kinds and kinds[name] not in wanted[name]]
    if "id" not in kinds or not {"sequence", "at"} & kinds.keys() or wrong:
        raise TableError(
            "Wanted requests with id (string or binary) and sequence (bigint) or at (timestamp). "
            f"Found: {', '.join(wrong or [f'{name} {kind}' for name, kind in kinds.items()])}"
        )
    if known == "computed" and "at" not in kinds:
        raise TableError("Wanted requests with at (timestamp), for known='computed'. Found: sequence alone.")
    return kinds


def _with_values(found: DataFrame, one: Fields, *, spark: SparkSession, by_digest: bool, known: str) -> DataFrame:
    """Add the values of a view to requests that have their id in `_KEY` and the digest of then."""
    fields, digest = list(one.view.fields), _STATE["sha256"]
    values = read_table(spark, one.table, columns=["id", "sequence", "created_timestamp", "sha256", *fields])
    values = values.transform(values_of_bytes, fields=fields) if by_digest else values.transform(newest_of_images)
    of_image, of_bytes, created = ours("image"), ours("bytes"), ours("created")
    values = values.select(
        uuid_bytes("id").alias(of_image),
        F.col("sha256").alias(of_bytes),
        F.col("created_timestamp").alias(created),
        *fields,
    )
    is_same = F.col(_KEY) == F.col(of_image)
    if by_digest:
        is_same &= F.col(digest) == F.col(of_bytes)
    if known == "computed":
        is_same &= F.col(created) <= F.col("at")
    return found.join(values, on=is_same, how="left").drop(of_image, of_bytes, created)
