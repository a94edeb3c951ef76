"""The options of runs that delete images or replaced bytes, validated before anything starts."""

import uuid
from dataclasses import dataclass, field

from schemas import Columns, TableName
from schemas.as_of import AsOf


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPlan:
    """The options of a run that deletes the bytes of states that ended at or before a run, ``before``: its number, an
    ingest id or a time. Raises ValueError for invalid options.
    """

    data_table: TableName
    metadata_table: TableName
    before: str
    count: int | None = None  # confirms the number of copies
    force: bool = False  # delete bytes that pinned splits may name
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        AsOf.parse(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlan:
    """The options of a run that deletes images. Exactly one of ``ids_file``, ``ids``, ``source``, ``ingest`` and
    ``where`` chooses them. Raises ValueError for invalid options.
    """

    data_table: TableName
    metadata_table: TableName
    reason: str
    ids_file: str | None = None  # a file with ids
    ids: tuple[uuid.UUID, ...] = ()
    source: str | None = None  # the name of a source
    ingest: uuid.UUID | int | None = None  # an ingest id, or the sequence of a run
    where: str | None = None  # a condition over the metadata
    count: int | None = None  # confirms the number of images
    splits: tuple[str, ...] = ()  # split folders to look into, besides the registered ones
    force: bool = False  # delete images that pinned or named splits hold
    caches: tuple[str, ...] = ()  # metadata caches to remove the images from
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        for name in ("ids", "splits", "caches"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        ways = {
            "--ids": self.ids_file is not None,
            "--id": bool(self.ids),
            "--source": self.source is not None,
            "--ingest": self.ingest is not None,
            "--where": self.where is not None,
        }
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) != 1:
            raise ValueError(f"Wanted one of {', '.join(ways)}. Found: {' and '.join(given) or 'none'}.")
        if not self.reason.strip():
            raise ValueError("Wanted a reason, which the history keeps. Found: an empty one.")
        if self.where is not None and not self.where.strip():
            raise ValueError("Wanted a condition for --where. Found: an empty one.")
        for name in (*self.splits, *self.caches):
            if not name.strip():
                raise ValueError("Wanted a folder for --split and --cache. Found: an empty name.")
        if self.count is not None and self.count < 0:
            raise ValueError(f"Wanted --count of 0 or more. Found: {self.count}")

    @property
    def choice(self) -> str:
        """What chooses the images, in words."""
        if self.ids_file is not None:
            return f"the ids in {self.ids_file}"
        if self.ids:
            return "these ids"
        if self.source is not None:
            return f"the source {self.source}"
        return f"ingest {self.ingest}" if self.ingest is not None else f"--where {self.where!r}"
