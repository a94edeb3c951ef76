"""The place where a split is written: aside, checked from what lies on disk, then published by its manifest.

A folder is a split from the moment that its manifest is there. Files are written below an attempt of their own; the
driver moves them to their places and puts the manifest last, in one step, so that readers see the old split or the new
one, whole. What a killed attempt leaves behind is no split, and goes with the next one.
"""

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from pyspark.sql import DataFrame, Row, SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.split_plan import SplitPlan
from etl.splits import summarise
from formats.fingerprint import split_fingerprint
from formats.split_folder import SplitFolder
from formats.storage import Storage
from schemas import FormatVersionError, SchemaError, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAME as MANIFEST
from schemas.splits import SPARK_SCHEMA

_ATTEMPT = re.compile(r"_attempt-[0-9a-f]{12}")
_SPLIT = re.compile(r"split=[0-9]+")
_PART = re.compile(r"\.?part-.*\.parquet(\.crc)?")


class SplitOutput:
    """A split folder in the making; a context manager that leaves nothing of a failed attempt behind."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        """Raises `OutputExistsError` if the place is taken, unless by a split that ``overwrite`` allows to replace.

        What is not known to be a split's, whole or half-written, is never replaced.
        """
        self._storage = Storage(address)
        self._attempt = f"_attempt-{secrets.token_hex(6)}"
        self._is_new = not self._storage.exists()
        place = self._storage.address
        if not self._is_new and not self._storage.is_folder():
            raise OutputExistsError(f"Wanted a folder for the split at {place}. Found: a file. Name another place.")
        names = self._storage.names()
        self._stale = [name for name in names if _ATTEMPT.fullmatch(name)]
        strangers = [name for name in names if not self._is_ours(name)]
        if strangers:
            raise OutputExistsError(
                f"Wanted an empty or a new folder for the split, or an old split, at {place}. "
                f"Found: {', '.join(strangers[:3])} in it. Name another folder."
            )
        if len(names) > len(self._stale) and not overwrite:
            found = "a split that is there already" if MANIFEST in names else "a split that was left half-written"
            raise OutputExistsError(
                f"Wanted a new folder for the split at {place}. Found: {found}. "
                "Give --overwrite to replace it, or name another folder with -o."
            )
        try:
            self._storage.make_folder(self._attempt)
        except OSError as error:
            raise OutputExistsError(
                f"Wanted a folder that can be written for the split at {place}. Found: {error.strerror or error}."
            ) from None

    def _is_ours(self, name: str) -> bool:
        if name == MANIFEST:
            try:
                SplitFolder.open(self.address)
            except FormatVersionError as error:
                raise OutputExistsError(f"{error} Or name another folder.") from None
            except SchemaError:
                return False
            return True
        if _SPLIT.fullmatch(name):
            return all(_PART.fullmatch(file) for file in self._storage.files(name))
        return bool(_ATTEMPT.fullmatch(name) or re.fullmatch(r"\.manifest\.json\.[0-9]+", name))

    def __enter__(self) -> "SplitOutput":
        return self

    def __exit__(self, *_: object) -> None:
        self._storage.remove(self._attempt)
        if self._is_new and not self._storage.names():
            self._storage.remove("")

    @property
    def address(self) -> str:
        """The split folder, as messages name it."""
        return self._storage.address

    def aside(self, name: str) -> str:
        """An address for Spark, inside this attempt."""
        scheme = "file://" if self._storage.is_local else ""
        return f"{scheme}{self._storage.address}/{self._attempt}/{name}"

    def write(self, spark: SparkSession, positioned: DataFrame, *, plan: SplitPlan) -> tuple[SplitPart, ...]:
        """Write ``split, id, label, position`` rows aside and read them back: the parts of the manifest, by split."""
        positioned.write.partitionBy("split").option("compression", "zstd").parquet(self.aside("rows"))
        written = spark.read.schema(SPARK_SCHEMA).parquet(self.aside("rows"))
        return parts(summarise(written).collect(), plan=plan)

    def publish(
        self, splits: Iterable[SplitPart], *, plan: SplitPlan, num_classes: int, class_names: Mapping[int, str]
    ) -> SplitManifest:
        """Move the files to their places and put the manifest last; what it does not name is removed."""
        manifest = SplitManifest(
            data_table=str(plan.data_table),
            metadata_table=str(plan.metadata_table),
            columns=plan.columns,
            label_type="int",
            num_classes=num_classes,
            class_names=class_names,
            seed=plan.seed,
            options=plan.as_options(),
            splits=tuple(splits),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            code_version=code_version(),
        )
        named = {file.path for part in manifest.splits for file in part.files}
        for path in sorted(named):
            self._storage.move(f"{self._attempt}/rows/{path}", path)
        self._storage.publish_text(MANIFEST, manifest.to_json())
        for folder in self._stale:
            self._storage.remove(folder)
        for folder in filter(_SPLIT.fullmatch, self._storage.names()):
            for file in self._storage.files(folder):
                if f"{folder}/{file}" not in named and _PART.fullmatch(file):
                    self._storage.remove(f"{folder}/{file}")
        return manifest


def parts(summary: Iterable[Row], *, plan: SplitPlan) -> tuple[SplitPart, ...]:
    """The manifest's entries from `etl.splits.summarise`'s rows; a split that got no rows has an entry too."""
    files: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in summary:
        split, _, file = row["file"].rpartition("/split=")[2].partition("/")
        index = int(split)
        files[index][f"split={index}/{file}"] += row["rows"]
        counts[index][row["label"]] += row["rows"]
        for number in (0, 1):
            sums[index][number] += (row[f"high{number}"] << 32) + row[f"low{number}"]
    found = []
    for index in range(len(plan.ratios)):
        rows = sum(counts[index].values())
        pair = (sums[index][0], sums[index][1])
        found.append(
            SplitPart(
                index=index,
                rows=rows,
                counts=dict(sorted(counts[index].items())),
                fingerprint=split_fingerprint(seed=plan.seed, index=index, rows=rows, sums=pair),
                files=tuple(SplitFile(path, count) for path, count in sorted(files[index].items())),
            )
        )
    return tuple(found)


def check_quotas(splits: Iterable[SplitPart], quotas: Mapping[int, tuple[int, ...]]) -> None:
    """Raise `EtlError` unless what was read back is the quota matrix, cell by cell. ``quotas``: by class, by split."""
    off = [
        f"class {label} in split {part.index}: wanted {of_class[part.index]}, found {part.counts.get(label, 0)}"
        for part in splits
        for label, of_class in quotas.items()
        if part.counts.get(label, 0) != of_class[part.index]
    ]
    if off:
        raise EtlError(f"Wanted the files to hold the quotas. Found: {len(off)} cells off, {'; '.join(off[:3])}.")


def code_version() -> str:
    """The installed version of this software, or ``unknown`` where it is shipped as a zip."""
    try:
        return version("imagestrata")
    except PackageNotFoundError:
        return "unknown"
