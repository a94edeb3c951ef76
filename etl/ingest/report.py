"""Reports and estimates of ingests, for people and for programs."""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Row

from etl.ingest.class_remarks import ClassRemarks, NewClasses
from etl.ingest.destination import StartedRun
from etl.ingest.duplicates import DuplicateSummary
from etl.ingest.listed_images import ListingCounts
from etl.ingest.plan import IngestPlan
from etl.ingest.stale_rows import StaleRows
from etl.ingest.writing.folder_rows import REJECTED
from etl.ingest.writing.outcomes import DELETED
from formats.sizes import counted

FORMAT = 1
_TAKEN = ("written", "already there")
_ONE_NODE_MB_PER_S = 90.0
_ONE_NODE_IMAGES_PER_S = 800.0
LEAST_FOR_RATE = 1_000  # images; in smaller runs, starting takes most of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The counts, destination and fingerprint of one ingest. As text, it is the last line that a job prints.

    ``classes`` counts the classes with images, and ``empty_classes`` lists the others of the source. ``images`` and
    ``bytes`` count what this run wrote; ``already_there`` counts images that were written before.
    ``images_by_split`` and the fingerprint cover both, so an interrupted and resumed ingest gives the same values.
    ``notes`` counts remarks on ingested images. ``unmatched`` lists entries of the label sources without an image, and
    how names were matched. ``duplicates`` has the exact duplicates in the table (None if this run wrote nothing).
    ``deleted`` images of the source were deleted from the tables on request
    and are left out. ``stale`` counts the stale rows of this source (None in new tables).
    """

    images: int
    already_there: int
    deleted: int = 0
    bytes: int
    classes: int
    quarantined: int
    quarantined_by_reason: dict[str, int]
    images_by_split: dict[str, int]
    notes: dict[str, int]
    unmatched: list[str]
    new_classes: NewClasses | None
    empty_classes: list[str] = field(default_factory=list)
    similar_classes: list[dict[str, int]]
    duplicates: DuplicateSummary | None = None
    stale: StaleRows | None = None
    executors: dict[str, dict[str, int]]
    seconds: float = 0.0
    images_per_s: float = 0.0
    mb_per_s: float = 0.0
    data_table: str | None
    metadata_table: str | None
    quarantine_table: str | None
    target: str | None
    dataset: str
    ingest_id: str
    sequence: int | None
    clock: int | None
    fingerprint: str

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        *,
        plan: IngestPlan,
        classes: int,
        ingest_id: uuid.UUID,
        unmatched: Sequence[str],
        started: StartedRun | None,
        remarks: ClassRemarks,
    ) -> "IngestReport":
        """Sum up the rows of `outcomes.tally`."""
        stages: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        splits: Counter[str] = Counter()
        notes: Counter[str] = Counter()
        executors: dict[str, Counter[str]] = {}
        written = first = second = 0
        for row in rows:
            if row.stage in _TAKEN:
                stages[row.stage] += row.files
                splits[row.or_split] += row.files
                first, second = first + int(row["first"]), second + int(row.second)
                written += row.bytes if row.stage == "written" else 0
                if row.note:
                    notes[row.note] += row.files
            elif row.stage == DELETED:
                stages[row.stage] += row.files
            else:
                reasons[row.kind] += row.files
            if row.executor:
                size = row.bytes if row.stage == "written" else 0
                count = {"images": row.files} if row.stage == "written" else {"rejected": row.files}
                executors.setdefault(row.executor, Counter(images=0, bytes=0, rejected=0)).update(count, bytes=size)
        tables = None if plan.target is not None else plan.tables
        return cls(
            images=stages["written"],
            already_there=stages["already there"],
            deleted=stages[DELETED],
            bytes=written,
            classes=classes,
            quarantined=reasons.total(),
            quarantined_by_reason=_most_first(reasons),
            images_by_split=dict(sorted(splits.items())),
            notes=_most_first(notes),
            unmatched=list(unmatched),
            new_classes=remarks.new,
            empty_classes=remarks.empty,
            similar_classes=remarks.similar,
            executors={name: dict(counts) for name, counts in sorted(executors.items())},
            data_table=str(tables.data) if tables else None,
            metadata_table=str(tables.metadata) if tables else None,
            quarantine_table=str(tables.quarantine) if tables else None,
            target=plan.target,
            dataset=plan.dataset,
            ingest_id=str(ingest_id),
            sequence=None if started is None else started.run.sequence,
            clock=None if started is None else started.run.clock,
            fingerprint=_fingerprint(sum(stages[name] for name in _TAKEN), first, second),
        )

    def with_seconds(self, seconds: float) -> "IngestReport":
        """The report with the total time, and the rates that follow from it."""
        return replace(
            self,
            seconds=round(seconds, 3),
            images_per_s=round(self.images / seconds, 1),
            mb_per_s=round(self.bytes / 1e6 / seconds, 2),
        )

    def __str__(self) -> str:
        place = self.target or f"{self.data_table} and {self.metadata_table}"
        classes = f" of {counted(self.classes, 'class', 'classes')}" if self.classes else ""
        rate = f" ({self.images_per_s:,.0f} images/s)" if self.images >= LEAST_FOR_RATE else ""
        text = (
            f"ingested {counted(self.images, 'image')} ({self.bytes / 1e6:,.1f} MB){classes} into "
            f"{place} in {self.seconds:,.1f} s{rate}"
        )
        if self.already_there:
            text += f"; {self.already_there:,} existed already"
        if self.deleted:
            text += f"; {_left_out(self.deleted)}"
        if self.quarantined:
            text += f"; {self.quarantined:,} rejected ({reasons(self.quarantined_by_reason)}): {self.rejected_at}"
        if self.stale and self.stale.rows:
            text += f"; {self.stale}"
        if self.duplicates and self.duplicates.groups:
            text += f"; {self.duplicates}"
        notes = [f"{count:,} {note}" for note, count in self.notes.items()]
        remarks = ClassRemarks(new=self.new_classes, empty=self.empty_classes, similar=self.similar_classes)
        for remark in [*notes, *self.unmatched, *remarks.lines]:
            text += f"; {remark}"
        if self.sequence is not None:
            text += f"; run {self.sequence} of {self.metadata_table}"
        return f"{text}; fingerprint {self.fingerprint}"

    @property
    def rejected_at(self) -> str:
        """The query or the file that shows the rejected files."""
        if self.target is not None:
            return f"{self.target}/{REJECTED}"
        return f"SELECT * FROM {self.quarantine_table} WHERE ingest_id = {self.ingest_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestEstimate:
    """An estimate of an ingest from its listing. Nothing was written."""

    images: int
    bytes: int
    classes: int
    rejected: int
    rejected_by_reason: dict[str, int]
    images_by_split: dict[str, int]
    unmatched: list[str] = field(default_factory=list)
    new_classes: NewClasses | None = None
    empty_classes: list[str] = field(default_factory=list)
    similar_classes: list[dict[str, int]] = field(default_factory=list)
    already_there: int = 0
    deleted: int = 0
    stale: StaleRows | None = None
    disk_bytes: int = 0  # of all replicas
    seconds: float = 0.0  # on one node of two cores, shared with the client

    @classmethod
    def of(
        cls,
        counts: ListingCounts,
        *,
        plan: IngestPlan,
        unmatched: Sequence[str],
        already_there: int,
        deleted: int,
        stale: StaleRows | None,
        remarks: ClassRemarks,
    ) -> "IngestEstimate":
        """Sum up a listing."""
        images = counts.files - counts.rejected
        copies = sum(int(part.rpartition(":")[2]) for part in (plan.replication or "1").split(","))
        left = max(0, images - already_there - deleted)
        size = counts.bytes * left // max(images, 1)
        return cls(
            images=images,
            bytes=counts.bytes,
            classes=sum(map(bool, counts.images_by_class.values())) if plan.source.label_type == "int" else 0,
            rejected=counts.rejected,
            rejected_by_reason=counts.rejected_by_reason,
            images_by_split=counts.images_by_split,
            unmatched=list(unmatched),
            new_classes=remarks.new,
            empty_classes=remarks.empty,
            similar_classes=remarks.similar,
            already_there=already_there,
            deleted=deleted,
            stale=stale,
            disk_bytes=counts.bytes * copies,
            seconds=round(max(size / 1e6 / _ONE_NODE_MB_PER_S, left / _ONE_NODE_IMAGES_PER_S), 1),
        )

    def __str__(self) -> str:
        splits = ", ".join(
            f"{name} {count:,}" if name else f"{count:,} without a split"
            for name, count in self.images_by_split.items()
        )
        classes = f" of {counted(self.classes, 'class', 'classes')}" if self.classes else ""
        text = (
            f"would ingest {self.images - self.already_there - self.deleted:,} of {counted(self.images, 'file')} "
            f"({self.bytes / 1e6:,.1f} MB; {splits}){classes}: "
            f"{self.disk_bytes / 1e6:,.1f} MB of disk for all replicas, about {self.seconds:,.0f} s "
            "on one node of two cores"
        )
        if self.rejected:
            files = counted(self.images + self.rejected, "file")
            text += f"; {self.rejected:,} of {files} cannot be ingested ({reasons(self.rejected_by_reason)})"
        if self.deleted:
            text += f"; {_left_out(self.deleted)}"
        stale = [str(self.stale)] if self.stale and self.stale.rows else []
        remarks = ClassRemarks(new=self.new_classes, empty=self.empty_classes, similar=self.similar_classes)
        unchecked = "the contents of files are checked when they are ingested"
        return "; ".join([text, unchecked, *stale, *self.unmatched, *remarks.lines, "nothing was written"])


def _left_out(deleted: int) -> str:
    verb = "image was" if deleted == 1 else "images were"
    return f"{deleted:,} {verb} deleted and left out (to ingest them: --restore-deleted)"


def reasons(counts: Mapping[str, int]) -> str:
    """The reasons for which files were rejected, with the number of files."""
    return ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())


def _most_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _fingerprint(rows: int, first: int, second: int) -> str:
    """The fingerprint, 64 hexadecimal digits: the same for the same images with the same labels, in any order."""
    text = json.dumps(["ingest", FORMAT, rows, first % (1 << 64), second % (1 << 64)])
    return hashlib.sha256(text.encode()).hexdigest()
