"""Trees of images to ingest, plans for them, and the resulting tables."""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pyspark.sql import DataFrame

from etl.cassandra.control import Control
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.ingest.report import IngestReport
from etl.sources.plan import SourcePlan
from schemas import TableName
from tests.support.encoding import encoded
from tests.support.services import fresh_name

PlanOf = Callable[..., IngestPlan]
"""Makes the plan of an ingest from a source and options, for tables of one test."""

_VOLATILE = {"ingested_at", "ingest_id", "since"}


def picture(seed: int, *, kind: str = "PNG", size: tuple[int, int] = (16, 12)) -> bytes:
    """A small image of one colour."""
    return encoded(Image.new("RGB", size, (seed % 256, seed // 256 % 256, 7)), kind)


def plant(root: Path, files: Mapping[str | bytes, bytes] | Mapping[str, bytes]) -> Path:
    """Write files below a folder; returns the folder."""
    for path, data in files.items():
        place = os.path.join(os.fsencode(root), os.fsencode(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)
    return root


def touch(root: Path, *paths: str | bytes) -> Path:
    """Write files of one byte below a folder; returns the folder."""
    return plant(root, dict.fromkeys(map(os.fsencode, paths), b"x"))


def tree(
    root: Path, *, splits: tuple[str, ...] = ("train", "val"), classes: Iterable[str] = "abc", each: int = 4
) -> Path:
    """A tree with split folders and class folders, with this many images in each."""
    names = itertools.product(splits, classes, range(each))
    return plant(root, {f"{split}/{name}/{i}.png": picture(i + 300 * ord(name[0])) for split, name, i in names})


def plan_maker() -> PlanOf:
    """Makes plans that write to a fresh keyspace; the splits are train and val by default."""
    keyspace = fresh_name("ingest")

    def make(source: Path | str, **options: Any) -> IngestPlan:
        tables = {"data_table": TableName(keyspace, "data"), "metadata_table": TableName(keyspace, "metadata")}
        if "target" in options:
            tables = {}
        options = {"splits": ("train", "val"), **tables, **options}
        of_source = {field.name for field in fields(SourcePlan)} & options.keys()
        from_where = SourcePlan(address=str(source), **{name: options.pop(name) for name in of_source})
        return IngestPlan(source=from_where, **options)

    return make


def rows_of(control: Control, table: TableName) -> list[dict[str, Any]]:
    """All rows in order, without the columns that differ between two runs."""
    rows = [row._asdict() for row in control.execute(f"SELECT * FROM {table.quoted}")]
    kept = [{name: value for name, value in row.items() if name not in _VOLATILE} for row in rows]
    return sorted(kept, key=lambda row: str(row.get("id", row)))


def tables_of(control: Control, plan: IngestPlan) -> list[list[dict[str, Any]]]:
    """The rows of data, metadata and classes."""
    return [rows_of(control, table) for table in (plan.tables.data, plan.tables.metadata, plan.tables.classes)]


def by_name(control: Control, plan: IngestPlan) -> dict[str, dict[str, Any]]:
    """Metadata rows with their image as ``data`` and its label as ``stored``, by split and path."""
    data = {row["id"]: row for row in rows_of(control, plan.tables.data) if row["data"] is not None}
    rows = rows_of(control, plan.tables.metadata)
    assert {row["id"] for row in rows} == data.keys()
    return {
        f"{row['or_split']}/{row['path']}": {
            **row,
            "data": data[row["id"]]["data"],
            "stored": data[row["id"]].get("label"),
        }
        for row in rows
    }


def quarantine(control: Control, report: IngestReport) -> dict[str, tuple[str, str]]:
    """Stage and reason of rejected files, by path."""
    rows = control.execute(report.rejected_at)
    return {row.path: (row.stage, row.reason) for row in rows}


def before_writing(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Call a function right after the source has been listed: no other way hits that moment reliably."""
    write = ingestion.write

    def write_then(*args: Any, **options: Any) -> DataFrame:
        what()
        return write(*args, **options)

    monkeypatch.setattr(ingestion, "write", write_then)
