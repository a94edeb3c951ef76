"""The report of a verification, for people and for programs."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import Row

from etl.verify.comparison import GONE, KINDS, NO_INGEST, UNREADABLE
from schemas.names import hidden_character

EXAMPLES = 20
_REMEDIES = {
    GONE: "to remove these rows: ingest.py with this source, --resume and --prune",
    UNREADABLE: "make the files readable, and run again",
    NO_INGEST: "to remove such an image: delete.py --id",
}
"""What to do with problems that a repair leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was compared, and the problems: their numbers by kind, and the first 20 of each kind by name.

    ``bytes`` counts the bytes of the images that were read, and ``files`` the files that the source lists (None without
    a source). ``others`` of its images have rows of other sources, which were not compared with it. ``mended`` has the
    numbers of repaired problems by kind, from reading back; ``left`` has the others. ``unchanged`` images were written
    or deleted, but are wrong when read. ``sequence`` is the repair's position in the sequence of the table's runs.
    """

    data_table: str
    metadata_table: str
    source: str | None
    check: str
    images: int
    blobs: int
    bytes: int
    files: int | None
    others: int
    problems: dict[str, int]
    examples: dict[str, list[str]]
    mended: dict[str, int]
    left: int
    unchanged: int
    sequence: int | None
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        lines = []
        for kind, count in self.problems.items():
            mended = f", {self.mended[kind]:,} repaired" if self.mended.get(kind) else ""
            lines.append(f"{count:,} x {kind}{mended}")
            lines += [f"    {example}" for example in self.examples[kind]]
            lines += ["    ..."] if count > len(self.examples[kind]) else []
            if kind in _REMEDIES and count > self.mended.get(kind, 0):
                lines.append(f"    {_REMEDIES[kind]}")
        listed = "" if self.files is None else f", and {self.files:,} files of {self.source}"
        if self.others:
            lines.append(f"{self.others:,} images have rows of other sources, which were not compared with this one")
        wrong = self.summary() or "nothing is wrong"
        lines.append(
            f"compared {self.images:,} rows of {self.metadata_table} with {self.blobs:,} of {self.data_table} "
            f"({self.bytes / 1e6:,.1f} MB){listed}, by {self.check}, in {self.seconds:,.1f} s: {wrong}"
        )
        return "\n".join(lines)

    def summary(self) -> str:
        """The problems in one line, without those that were repaired; empty if there are none."""
        left = {kind: count - self.mended.get(kind, 0) for kind, count in self.problems.items()}
        text = ", ".join(f"{count:,} x {kind}" for kind, count in left.items() if count)
        if mended := sum(self.mended.values()):
            text = f"{mended:,} problems were repaired" + (f"; remaining: {text}" if text else "")
        if self.unchanged:
            text += (
                f". {self.unchanged:,} images were written or deleted, but are unchanged when read: the tables "
                "have later write times (see WRITETIME in CQL), from a machine whose clock was ahead"
            )
        return text


def describe(rows: Iterable[Row]) -> dict[str, list[str]]:
    """The rows of `problems.first_problems` as lines by kind: id, and name and detail if known."""
    found: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["rank"])):
        name = row["name"] or ""
        parts = (str(uuid.UUID(bytes=bytes(row["id"]))), name if hidden_character(name) is None else ascii(name))
        detail = f" ({row.detail})" if row.detail else ""
        found.setdefault(row["kind"], []).append(" ".join(filter(None, parts)) + detail)
    return found
