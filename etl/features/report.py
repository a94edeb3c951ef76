"""The report of a featurize run, for people and for programs."""

from dataclasses import dataclass, field

from etl.ingest.report import LEAST_FOR_RATE
from formats.sizes import counted


@dataclass(frozen=True, slots=True)
class ViewCounts:
    """The number of images whose value was computed, and of images for which that failed."""

    computed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizeReport:
    """What a run computed."""

    data_table: str
    metadata_table: str
    views: dict[str, ViewCounts]
    on_demand: dict[str, tuple[str, ...]]  # views that are computed when they are read, with the ones they use
    indexed: dict[str, int]  # the vectors that were added to the vector index of a view
    tables: dict[str, str]  # the table of each view's values
    images: int  # those that lacked a value and were read
    gone: int  # those that were deleted or changed before they were read
    sequence: int | None  # of the run, among the table's runs; None if nothing was to be done
    run_id: str | None  # in the quarantine table
    offline: str | None = None
    stored: dict[str, int] = field(default_factory=dict)  # the rows by view that were written to ``offline``
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        offline = [f"{title}: {counted(rows, 'row')} in {self.offline}/{title}" for title, rows in self.stored.items()]
        lines = [
            f"{title}: computed when it is read, from {', '.join(uses) or f'columns of {self.metadata_table}'}"
            for title, uses in self.on_demand.items()
        ]
        added = [
            f"{title}: {counted(count, 'vector')} added to the vector index" for title, count in self.indexed.items()
        ]
        if not self.images:
            if self.views:
                what = ", ".join(self.views)
                lines += [*offline, f"all images of {self.metadata_table} have {what}, in {self.seconds:,.1f} s"]
            return "\n".join([*lines, *added])
        lines += [
            f"{title}: {counted(counts.computed, 'value')} in {self.tables[title]}"
            + (f", {counted(counts.failed, 'image')} without one" if counts.failed else "")
            for title, counts in self.views.items()
        ]
        lines += added
        if any(counts.failed for counts in self.views.values()):
            keyspace = self.metadata_table.partition(".")[0]
            lines.append(
                f"reasons: SELECT path, stage, reason FROM {keyspace}.quarantine WHERE ingest_id = {self.run_id}; "
                "--retry computes these again"
            )
        if self.gone:
            gone = f"{counted(self.gone, 'image')} {'was' if self.gone == 1 else 'were'}"
            lines.append(f"{gone} deleted or changed in the meantime; run the job again")
        lines += offline
        has_rate = self.seconds and self.images >= LEAST_FOR_RATE
        rate = f" ({self.images / self.seconds:,.0f} images/s)" if has_rate else ""
        lines.append(f"{counted(self.images, 'image')} of {self.metadata_table} in {self.seconds:,.1f} s{rate}")
        return "\n".join(lines)
