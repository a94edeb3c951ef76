"""What an ingest did, for people and for programs."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Row

from etl.ingest_plan import IngestPlan

FORMAT = 1
SUM_SEEDS = (0x3C0FFEE, 0x4C0FFEE)
"""Prepended to (id, label, sha256), to make two independent row hashes of Spark's one function."""

_TAKEN = ("written", "already there")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """Counts, places and the fingerprint of one ingest; its text is the last line that a job prints.

    ``images`` and ``bytes`` were written by this run; ``already_there`` were written by the run that it carries on.
    ``images_by_split`` and the fingerprint cover both, so that they are those of a run that was not interrupted.
    """

    images: int
    already_there: int
    bytes: int
    classes: int
    quarantined: int
    quarantined_by_reason: dict[str, int]
    images_by_split: dict[str, int]
    seconds: float
    images_per_s: float
    mb_per_s: float
    data_table: str
    metadata_table: str
    quarantine_table: str
    dataset: str
    ingest_id: str
    fingerprint: str

    @classmethod
    def of(
        cls, rows: Iterable[Row], *, plan: IngestPlan, classes: int, ingest_id: str, seconds: float
    ) -> "IngestReport":
        """Sum up the rows of `ingest.tally`."""
        stages: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        splits: Counter[str] = Counter()
        written = first = second = 0
        for row in rows:
            if row.stage in _TAKEN:
                stages[row.stage] += row.files
                splits[row.or_split] += row.files
                first, second = first + int(row["first"]), second + int(row.second)
                written += row.bytes if row.stage == "written" else 0
            else:
                reasons[row.kind] += row.files
        return cls(
            images=stages["written"],
            already_there=stages["already there"],
            bytes=written,
            classes=classes,
            quarantined=reasons.total(),
            quarantined_by_reason=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            images_by_split=dict(sorted(splits.items())),
            seconds=round(seconds, 3),
            images_per_s=round(stages["written"] / seconds, 1),
            mb_per_s=round(written / 1e6 / seconds, 2),
            data_table=str(plan.data_table),
            metadata_table=str(plan.metadata_table),
            quarantine_table=str(plan.quarantine_table),
            dataset=plan.dataset,
            ingest_id=ingest_id,
            fingerprint=_fingerprint(stages.total(), first, second),
        )

    def __str__(self) -> str:
        text = (
            f"ingested {self.images:,} images ({self.bytes / 1e6:,.1f} MB) of {self.classes:,} classes into "
            f"{self.data_table} and {self.metadata_table} in {self.seconds:,.1f} s ({self.images_per_s:,.0f} images/s)"
        )
        if self.already_there:
            text += f"; {self.already_there:,} were there already"
        if self.quarantined:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.quarantined_by_reason.items())
            text += f"; {self.quarantined:,} rejected ({reasons}): {self.quarantine_query}"
        return f"{text}; fingerprint {self.fingerprint}"

    @property
    def quarantine_query(self) -> str:
        """The query that shows what was rejected."""
        return f"SELECT * FROM {self.quarantine_table} WHERE ingest_id = {self.ingest_id}"


def _fingerprint(rows: int, first: int, second: int) -> str:
    """64 hexadecimal digits for the same images with the same labels, in any order."""
    text = json.dumps(["ingest", FORMAT, rows, first % (1 << 64), second % (1 << 64)])
    return hashlib.sha256(text.encode()).hexdigest()
