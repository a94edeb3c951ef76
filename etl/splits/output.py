"""The output of a split: it is written aside, read back and checked, and then published by its manifest."""

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.splits.metadata import Metadata
from etl.splits.plan import SplitPlan
from etl.splits.positions import added_up
from etl.writing.publication import Kind, Publication, remove_attempt
from formats import croissant
from formats.checksums import COLUMN as CHECKSUM
from formats.origin import code_version, created
from formats.splits.dictionary import fingerprint_of, read_dictionary, write_dictionary
from formats.splits.features import FOLDER as FEATURES
from formats.splits.fingerprint import checksums_fingerprint, split_fingerprint
from formats.splits.folder import read_manifest
from formats.splits.opened import is_dictionary
from formats.splits.opening import open_split
from formats.stores.storage import Storage
from schemas import FormatVersionError, SchemaError, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAMES as MANIFESTS
from schemas.manifest import StoredFeature, StoredGroups
from schemas.splits import SPARK_TYPES

PAGE = "_report.html"
# Ids and positions are all different, so a dictionary is useless. Version 2 writes positions as steps of one, which
# compress and decode at almost no cost.
_PARQUET = {
    "compression": "zstd",
    "parquet.writer.version": "PARQUET_2_0",
    "parquet.enable.dictionary#id": "false",
    "parquet.enable.dictionary#position": "false",
    f"parquet.enable.dictionary#{CHECKSUM}": "false",
    "parquet.block.size": str(8 << 20),
}
_GROUPS = "_groups"


def _is_manifest(storage: Storage, name: str) -> bool:
    try:
        read_manifest(storage, name)
    except FormatVersionError as error:
        raise OutputExistsError(f"{error} Or use another folder.") from None
    except SchemaError:
        return False
    return True


_KIND = Kind(
    new="split",
    old="split",
    otherwise="use another folder with -o",
    manifests=MANIFESTS,
    folders=re.compile(rf"{FEATURES}|{_GROUPS}|split=[0-9]+").fullmatch,
    files=re.compile(rf"({FEATURES}/[^/]+/|{_GROUPS}/)?split=([0-9]+)/\.?part-.*\.parquet(\.crc)?").fullmatch,
    # Whole, or as a killed writer leaves it.
    beside=re.compile(
        r"_?report\.html|_croissant\.json|\.(_?manifest\.json|_?report\.html|_croissant\.json)\.[0-9a-f.]+"
    ).fullmatch,
    older=("manifest.json", "report.html"),  # as version 0.1 called them
    is_manifest=_is_manifest,
)


class SplitOutput:
    """The output of a split: a folder, or a split dictionary, which is made from a folder beside it."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        """Raises `OutputExistsError` unless the place is free, or ``overwrite`` may replace its split."""
        self._dictionary = _Dictionary(address, overwrite=overwrite) if is_dictionary(address) else None
        place, may_replace = (self._dictionary.aside, False) if self._dictionary else (address, overwrite)
        self._folder = Publication(place, _KIND, overwrite=may_replace)
        self.address = self._dictionary.address if self._dictionary else self._folder.storage.address
        try:
            self._folder.begin()
        except OSError as error:
            found = error.strerror or error
            raise OutputExistsError(
                f"Wanted a writable folder for the split at {self.address}. Found: {found}."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        try:
            self._folder.__exit__(kind, error, trace)
        finally:
            if self._dictionary is not None:
                self._folder.storage.remove("")

    def aside(self, name: str) -> str:
        """An address for Spark at which to write what belongs to the split, or is needed only to make it."""
        return self._folder.aside(name)

    def write(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Write rows of some columns of `SPARK_TYPES` aside; the rows that the files have now. There is one file per
        task and split. The rows of a task need not be sorted by split.
        """
        schema = [f"{name} {kind} NOT NULL" for name, kind in SPARK_TYPES.items() if name in rows.columns]
        writer = rows.write.partitionBy("split").options(**_PARQUET)
        writer.parquet(self.aside("rows"))
        return spark.read.schema(", ".join(schema)).parquet(self.aside("rows"))

    def write_groups(self, groups: DataFrame) -> dict[int, list[SplitFile]]:
        """Write the groups of each split, ``group, split``, aside; the files by split."""
        groups.select("group", "split").repartition(1).write.partitionBy("split").parquet(self.aside(_GROUPS))
        return self.files(_GROUPS)

    def files(self, of: str = "rows") -> dict[int, list[SplitFile]]:
        """The files that were written aside as ``of``, by split, with their numbers of rows from their footers."""
        found: dict[int, list[SplitFile]] = defaultdict(list)
        for file in self._folder.files(of, into="" if of == "rows" else of):
            index = file.path.rpartition("/")[0].rpartition("split=")[2]
            found[int(index)].append(file)
        return found

    def publish(
        self,
        splits: Sequence[SplitPart],
        *,
        plan: SplitPlan,
        metadata: Metadata,
        warnings: Sequence[str],
        page: str,
        stored: Sequence[StoredFeature] = (),
        groups: StoredGroups | None = None,
    ) -> SplitManifest:
        """Publish what was written aside, with the report as HTML. The fingerprints of a dictionary are its own."""
        largest = max([*(label for part in splits for label in part.counts), *metadata.class_names], default=-1)
        manifest = SplitManifest(
            **metadata.in_manifests,
            num_classes=1 + largest,
            has_position=plan.has_position,
            warnings=tuple(warnings),
            replaced=metadata.replaced,
            expires=metadata.expires,
            stored_features=tuple(stored),
            services=metadata.services,
            groups=groups,
            seed=plan.seed,
            options=plan.as_options(),
            splits=tuple(splits),
            created=created(),
            code_version=code_version(),
        )
        rows = {file.path for part in manifest.splits for file in part.files}
        values = {file.path for one in manifest.stored_features for part in one.splits for file in part.files}
        others = values | {file.path for part in (groups.splits if groups else ()) for file in part}
        self._folder.move_in({f"rows/{path}": path for path in rows} | {path: path for path in others})
        described = croissant.split_croissant(manifest, name=self.address.rpartition("/")[2])
        beside = {PAGE: page.encode(), croissant.SPLIT_NAME: croissant.text_of(described).encode()}
        self._folder.publish(manifest.to_json(), files=rows | others, beside=beside)
        return manifest if self._dictionary is None else self._dictionary.publish(manifest)


class _Dictionary:
    """A split dictionary in the making. It is a file, so it is made from a whole split folder, at ``aside``."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        folder, _, name = Storage(address).address.rpartition("/")
        self._name = str(name)
        self._beside = Storage(folder)
        killed = re.compile(rf"\.{re.escape(self._name)}\.[0-9a-f]{{12}}")
        try:
            is_there = self._beside.exists(self._name)
            self._left = [name for name in self._beside.names() if killed.fullmatch(name)]
        except NotADirectoryError:
            raise OutputExistsError(f"Wanted a folder for {address}. Found: a file. Use another path.") from None
        if is_there:
            if not overwrite:
                raise OutputExistsError(
                    f"Wanted a new file for the split at {address}. Found: one that exists already. "
                    "Set --overwrite to replace it, or use another file with -o."
                )
            read_dictionary(address)
        self.address = f"{self._beside.address}/{self._name}"
        self.aside = f"{folder}/.{self._name}.{secrets.token_hex(6)}"

    def publish(self, manifest: SplitManifest) -> SplitManifest:
        """Convert the folder to the file, atomically. The fingerprints are those of the file's rows."""
        with TemporaryDirectory() as cache:
            folder = open_split(self.aside)
            rows = [folder.rows(part.index, cache=cache) for part in manifest.splits]
            write_dictionary(self._beside, self._name, manifest=manifest, splits=rows)
            prints = [fingerprint_of(index, of_split) for index, of_split in enumerate(rows)]
        for left in self._left:  # of killed runs, or of runs that fail then
            of_run = Storage(f"{self._beside.address}/{left}")
            for attempt in of_run.names():
                remove_attempt(of_run, attempt)
            self._beside.remove(left)
        parts = [replace(part, fingerprint=text) for part, text in zip(manifest.splits, prints, strict=True)]
        return replace(manifest, splits=tuple(parts))


def parts(
    summary: Iterable[Mapping[Any, Any]],
    *,
    files: Mapping[int, Sequence[SplitFile]],
    counts: Mapping[int, Sequence[int]],
    splits: int,
    plan: SplitPlan,
    label_type: str,
) -> tuple[SplitPart, ...]:
    """Make the manifest's entries from the rows of `summarise`. A split without rows has an entry too. ``files`` has
    the files by split, and ``counts`` the images by class and split if labels are not in the files. Raises `EtlError`
    if positions are not 0..n-1, or if the footers of files have other numbers of rows than were read.
    """
    of_split: dict[int, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in summary:
        of_split[int(row["split"])].append(row)
    found = []
    for index in range(splits):
        labels: dict[int, int] = defaultdict(int)
        for row in of_split[index]:
            labels[int(row["label"])] += int(row["rows"])
        rows = sum(labels.values())
        if plan.has_position:
            last = max((int(row["max_position"]) for row in of_split[index]), default=-1)
            total = sum(int(row["sum_position"]) for row in of_split[index])
            if last != rows - 1 or total != rows * (rows - 1) // 2:
                raise EtlError(f"Wanted positions 0 to {rows - 1} in split {index}. Found: others, up to {last}.")
        if (in_files := sum(file.rows for file in files.get(index, []))) != rows:
            raise EtlError(f"Wanted {rows} rows in the files of split {index}. Found: {in_files}.")
        if label_type != "int":
            labels = {label: row[index] for label, row in counts.items() if row[index]}
        fingerprint = split_fingerprint(seed=plan.seed, index=index, rows=rows, sums=added_up(of_split[index]))
        checked = [row for row in of_split[index] if "checksums" in row]
        unchecked = sum(int(row["unchecked"]) for row in checked)
        checksums = None
        if unchecked < rows and checked:  # a table of an earlier version may have the column, and no value in it
            sums = added_up(row["checksums"] for row in checked)
            checksums = checksums_fingerprint(split=fingerprint, rows=rows, sums=sums)
        found.append(
            SplitPart(
                index=index,
                rows=rows,
                counts=dict(sorted(labels.items())),
                fingerprint=fingerprint,
                files=tuple(sorted(files.get(index, []), key=lambda file: file.path)),
                checksums=checksums,
                without_checksum=unchecked,
            )
        )
    return tuple(found)


def check_parts(splits: Sequence[SplitPart], *, sizes: Sequence[int], counts: Mapping[int, Sequence[int]]) -> None:
    """Raise `EtlError` unless the rows read back are as planned. ``counts`` has the images by class and split."""
    off = [
        f"class {label} in split {part.index}: wanted {of_class[part.index]}, found {part.counts.get(label, 0)}"
        for part in splits
        for label, of_class in counts.items()
        if part.counts.get(label, 0) != of_class[part.index]
    ]
    off += [
        f"split {p.index}: wanted {size}, found {p.rows}"
        for p, size in zip(splits, sizes, strict=True)
        if p.rows != size
    ]
    if off:
        raise EtlError(f"Wanted the files to match the quotas. Found: {len(off)} other counts, {'; '.join(off[:3])}.")
