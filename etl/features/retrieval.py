"""The values of features: of all images, of some images by id, and as they were known at a point in time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.tables import read_table, uuid_bytes
from etl.columns import column, ours
from etl.errors import TableError
from etl.features.columns import Fields, find_fields
from etl.features.history import KnownValues, newest_of_images, points_in_time
from etl.labels.versions import ingested_labels, label_values, label_views
from etl.tables.metadata_table import MetadataTable
from schemas import Columns, TableName
from schemas.features import FeatureView, ViewName, vector_length
from schemas.tables import check_column

TIMES = ("sequence", "event_timestamp", "created_timestamp")
"""The run that wrote an image's bytes, that run's clock, and when the value was computed."""

_INGESTED = ours("ingested")
"""The column with the labels that images were ingested with."""


def current_values(table: MetadataTable, view: FeatureView) -> DataFrame:
    """The values that the images of a table have now: ``id`` (16 bytes), the columns of `TIMES` and the fields, a row
    for each image whose value was computed from the bytes that it has now. Fields are null if they could not be
    computed.
    """
    values = read_table(table.spark, view.table_of(table.name), columns=["id", *TIMES, "sha256", *view.fields])
    values = values.transform(newest_of_images).withColumn("id", uuid_bytes("id"))
    image, now = ours("image"), ours("sha256")
    images = table.rows(["sha256"]).withColumnsRenamed({"id": image, "sha256": now})
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
        views: The feature views, as ``NAME`` (the newest version with values) or ``NAME@vN``.
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
    for one in _stored_fields(control, metadata, views):
        fields = one.view.fields
        names = ", ".join(f'"{name}"' for name in fields)
        query = f'SELECT "sha256", {names} FROM {one.table.quoted} WHERE id = ? LIMIT 1'  # the newest is the first
        for values, image, newest in zip(found, images, control.execute_all(query, keys), strict=True):
            is_there = bool(image and newest) and (not has_digest or image[0].sha256 == newest[0].sha256)
            row = newest[0][1:] if is_there else [None] * len(fields)
            values |= {name: _shown(kind, value) for (name, kind), value in zip(fields.items(), row, strict=True)}
    return found


def _stored_fields(control: Control, metadata: TableName, views: Sequence[str]) -> list[Fields]:
    found = find_fields(control, metadata, names=(), pinned=list(map(ViewName.parse, views)))
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
    spark: SparkSession, requests: DataFrame | pd.DataFrame, *, metadata: TableName, views: Sequence[str]
) -> DataFrame:
    """Add to each request the values that were known then, never later ones. Feast: ``get_historical_features``.

    Args:
        spark: The session.
        requests: ``id`` (a UUID as text, or its 16 bytes) and ``sequence`` (values of images that this run or an
            earlier one wrote) or ``at`` (a timestamp: of runs that began then or earlier), and other columns. If it has
            both, ``sequence`` decides.
        metadata: The metadata table.
        views: The feature views, as ``NAME`` (the newest version with values) or ``NAME@vN``; or label views, whose
            values are class numbers: of the version that was the newest then, or if it does not name the image, those
            that the image was ingested with.

    Returns:
        The requests, each once, in any order, with the fields of all views; null if no value was known. With ``at``,
        values that were older than the view's ttl are null.

    Raises:
        TableError: A view has no values for this table or is computed when it is read, or a column of the requests
            is missing, has another type or the name of a field.
    """
    if isinstance(requests, pd.DataFrame):
        requests = spark.createDataFrame(requests)
    kinds = dict(requests.dtypes)
    wanted = {"id": ("string", "binary"), "sequence": ("int", "bigint"), "at": ("timestamp",)}
    wrong = [f"{name} {kinds[name]}" for name in wanted if name in kinds and kinds[name] not in wanted[name]]
    if "id" not in kinds or not {"sequence", "at"} & kinds.keys() or wrong:
        raise TableError(
            "Wanted requests with id (string or binary) and sequence (bigint) or at (timestamp). "
            f"Found: {', '.join(wrong or [f'{name} {kind}' for name, kind in kinds.items()])}"
        )
    known = []
    with Control.from_spark(spark) as control:
        wanted_views = [ViewName.parse(view) for view in views]
        of_labels = [view for view in wanted_views if label_views(control, metadata, name=view.name)]
        for one in _stored_fields(control, metadata, [str(view) for view in wanted_views if view not in of_labels]):
            fields = list(one.view.fields)
            values = read_table(spark, one.table, columns=["id", "sequence", "event_timestamp", *fields])
            known.append(KnownValues(values, fields, one.view.ttl if "at" in kinds else None))
        if of_labels:
            table = MetadataTable.open(spark, control, metadata)
            known.append(KnownValues(ingested_labels(table).withColumnRenamed("label", _INGESTED), [_INGESTED]))
            known += [KnownValues(label_values(table, view), [view.name]) for view in of_labels]
    if taken := [name for one in known for name in one.fields if name in kinds]:
        raise TableError(f"Wanted requests without the column {taken[0]}, which is a field of a view. Rename it.")
    if kinds["id"] == "string":
        rows = requests.withColumn("id", F.lower("id"))
    else:
        rows = requests
        known = [replace(one, values=one.values.withColumn("id", uuid_bytes("id"))) for one in known]
    found = rows.transform(points_in_time, views=known)
    labels = {view.name: F.coalesce(view.name, _INGESTED).alias(view.name) for view in of_labels}
    return found.select(*(labels.get(name, column(name)) for name in found.columns if name != _INGESTED))
