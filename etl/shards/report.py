"""The report of a sharding job, for people and for programs."""

from dataclasses import dataclass, field

from etl.ingest.report import LEAST_FOR_RATE, reasons
from formats.sizes import counted
from schemas.shards import ShardManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """Counts, address and fingerprint. As text, it is the last line that the job prints."""

    out: str
    images: int
    shards: int
    bytes: int
    classes: int
    pattern: str
    rejected: int
    rejected_by_reason: dict[str, int]
    remarks: list[str]
    fingerprint: str
    source_fingerprint: str
    is_new: bool = True  # false if an earlier run had written all shards, and this one wrote nothing
    seconds: float = field(compare=False)

    @classmethod
    def of(
        cls,
        manifest: ShardManifest,
        *,
        out: str,
        rejected_by_reason: dict[str, int],
        remarks: list[str],
        seconds: float,
        is_new: bool = True,
    ) -> "ShardReport":
        """Make the report of published shards."""
        return cls(
            out=out,
            images=manifest.samples,
            shards=len(manifest.shards),
            bytes=manifest.bytes,
            classes=manifest.num_classes,
            pattern=_pattern([shard.name for shard in manifest.shards]),
            rejected=sum(rejected_by_reason.values()),
            rejected_by_reason=rejected_by_reason,
            remarks=remarks,
            fingerprint=manifest.fingerprint,
            source_fingerprint=manifest.source_fingerprint,
            is_new=is_new,
            seconds=seconds,
        )

    def __str__(self) -> str:
        has_rate = self.seconds and self.images >= LEAST_FOR_RATE
        rate = f" ({self.images / self.seconds:,.0f} images/s)" if has_rate else ""
        rejected = f"; {self.rejected:,} rejected ({reasons(self.rejected_by_reason)}), see rejected.csv"
        left_out = rejected if self.rejected else ""
        remarks = "".join(f"; {remark}" for remark in self.remarks)
        if not self.is_new:
            return (
                f"nothing to write: {self.out}/{self.pattern} has {counted(self.images, 'image')} in "
                f"{counted(self.shards, 'shard')} ({self.bytes / 1e6:,.1f} MB) already; fingerprint "
                f"{self.fingerprint[:12]}"
            )
        return (
            f"wrote {counted(self.images, 'image')} into {counted(self.shards, 'shard')} ({self.bytes / 1e6:,.1f} MB) "
            f"as {self.out}/{self.pattern} in {self.seconds:.1f} s{rate}{left_out}{remarks}; "
            f"fingerprint {self.fingerprint[:12]}"
        )


def _pattern(names: list[str]) -> str:
    """The names in brace notation, as for shells and webdataset; with a star if some numbers are missing."""
    stems = [name.removesuffix(".tar").rpartition("-") for name in names]
    numbers = [int(number) for _, _, number in stems]
    if len(names) < 2 or numbers != list(range(numbers[0], numbers[0] + len(names))):
        return names[0] if len(names) == 1 else f"{stems[0][0]}-*.tar"
    return f"{stems[0][0]}-{{{stems[0][2]}..{stems[-1][2]}}}.tar"
