"""What became of each file of an ingest: the rows that a writing task gives back."""

from typing import NamedTuple

import pyarrow as pa

WRITTEN, THERE, THERE_FROM_OTHERS = "written", "already there", "from another source"
THERE_OTHERWISE = "there with another class"

OUTCOMES = (
    "id BINARY, label INT, or_split STRING, path STRING, bytes BIGINT, sha256 BINARY, stage STRING, reason STRING, "
    "note STRING, phash BIGINT, executor STRING"
)
"""``stage`` is ``written``, ``already there`` (or there ``from another source``, or ``with another class``), or where a
file was rejected: ``list``, ``read``, ``write``."""

ARROW_OUTCOMES = pa.schema(
    [
        pa.field("id", pa.binary()),
        pa.field("label", pa.int32()),
        pa.field("or_split", pa.string()),
        pa.field("path", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.binary()),
        pa.field("stage", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("note", pa.string()),
        pa.field("phash", pa.int64()),
        pa.field("executor", pa.string()),
    ]
)


class Outcome(NamedTuple):
    """One row of `OUTCOMES`: ``note`` is a remark on an image that was taken, ``phash`` what it looks like."""

    id: bytes
    label: int | None
    or_split: str
    path: str
    size: int
    sha256: bytes | None
    stage: str
    reason: str | None
    note: str | None
    phash: int | None
    executor: str
