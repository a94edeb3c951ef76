"""Sources with rows in memory: the loader's order, engine and iterators without a database."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from loader import DeletedImageError, MissingImageError, Split
from loader.prefetch.fetcher import Label, Row
from loader.prefetch.split_features import open_features
from loader.prefetch.stream import OnMissing
from loader.source import Options, Source
from loader.sources import parts_by_id


class RowFetcher:
    """Answers from a mapping. A row that does not exist is missing, and one of None was deleted."""

    connections = 1
    most_in_flight = None

    def __init__(
        self,
        rows: Mapping[UUID, bytes | None],
        labels: Mapping[UUID, Label],
        notes: Mapping[UUID, tuple[Any, ...]],
    ) -> None:
        self._rows, self._labels, self._notes = rows, labels, notes

    async def connect(self) -> None:
        """Do nothing."""

    async def read(self, one: bytes, position: int, /) -> Row:
        await asyncio.sleep(0)
        key = UUID(bytes=one)
        if key not in self._rows:
            raise MissingImageError(f"Wanted {self.wanted(one, position)}. Found: no such row")
        if (data := self._rows[key]) is None:
            raise DeletedImageError(f"Wanted {self.wanted(one, position)}. Found: it was deleted")
        return data, self._labels.get(key), self._notes.get(key, ())

    def wanted(self, one: bytes, position: int, /) -> str:
        return f"image {UUID(bytes=one)} from memory"

    async def close(self) -> None:
        """Do nothing."""


class RowSource(Source):
    """A source of these rows, by id, with the common options and defaults of all sources."""

    def __init__(
        self,
        split: Split,
        *,
        rows: Mapping[UUID, bytes | None],
        labels: Mapping[UUID, Label] | None = None,
        notes: Mapping[UUID, tuple[Any, ...]] | None = None,
        metadata: Sequence[str] = (),
        features: Sequence[str] = (),
        in_order: bool = True,
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        **options: Any,
    ) -> None:
        given = {"rows": rows, "labels": labels, "notes": notes, "metadata": metadata, "features": features}
        by_id: dict[str, Any] = {"in_order": in_order, "on_missing": on_missing, "max_missing": max_missing}
        usual: dict[str, Any] = {
            "rank": 0, "world_size": 1, "seed": 0, "shuffle": True, "last_batch_policy": "PARTIAL",
            "memory_budget": 256_000_000, "timeout": 60.0, "max_in_flight": 4096,
        }  # fmt: skip
        checked = Options.checked(**(usual | options))
        make_fetcher = partial(RowFetcher, rows, labels or {}, notes or {})
        super().__init__(
            split,
            parts_by_id(
                split, make_fetcher, checked, **by_id, metadata=tuple(metadata), features=open_features(split, features)
            ),
            checked,
            has_detected_ranks=False,
            remake=partial(RowSource, split, **given, **by_id),
        )
