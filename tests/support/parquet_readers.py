"""A split folder as other libraries read it, without ours: rows of (split, position, id, label), sorted."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet

Row = tuple[int, int, bytes, int]
_COLUMNS = ["split", "position", "id", "label"]


def _pandas(folder: Path) -> list[Row]:
    import pandas as pd

    return _rows(pd.read_parquet(folder).astype({"split": int})[_COLUMNS].to_dict("list"))


def _pyarrow(folder: Path) -> list[Row]:
    return _rows(pyarrow.parquet.read_table(folder).to_pydict())


def _dataset(folder: Path) -> list[Row]:
    return _rows(pyarrow.dataset.dataset(folder, partitioning="hive").to_table().to_pydict())


def _polars(folder: Path) -> list[Row]:
    import polars as pl

    return _rows(pl.read_parquet(folder / "*/*.parquet", hive_partitioning=True).to_dict(as_series=False))


def _duckdb(folder: Path) -> list[Row]:
    import duckdb

    found = duckdb.execute(f"SELECT {', '.join(_COLUMNS)} FROM read_parquet('{folder}/*/*.parquet')").fetchall()
    return sorted((split, position, bytes(id), label) for split, position, id, label in found)


def _rows(columns: dict[str, list[object]]) -> list[Row]:
    return sorted(zip(*(columns[name] for name in _COLUMNS), strict=True))  # type: ignore[arg-type]


READERS: dict[str, Callable[[Path], list[Row]]] = {
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "pyarrow.dataset": _dataset,
    "Polars": _polars,
    "DuckDB": _duckdb,
}
