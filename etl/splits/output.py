"""The output of a split: it is written aside, read back and checked, and then published by its manifest.

A folder is a split once it has a manifest. Files are written to the subfolder of an attempt. The driver then moves them
into the folder and writes the manifest last, atomically, so readers see either the complete old split or the complete
new one. The leftovers of a killed attempt are not a split; the next attempt that may overwrite them removes them.
"""

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from etl.attempt import Attempt
from etl.errors import EtlError, OutputExistsError
from etl.splits.metadata import Metadata
from etl.splits.plan import SplitPlan
from etl.splits.positions import added_up
from formats import croissant
from formats.origin import code_version, created
from formats.splits.dictionary import fingerprint_of, read_dictionary, write_dictionary
from formats.splits.features import FOLDER as FEATURES
from formats.splits.fingerprint import split_fingerprint
from formats.splits.folder import read_manifest
from formats.splits.opening import open_split
from formats.stores.storage import Storage
from schemas import FormatVersionError, SchemaError, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAME as MANIFEST
from schemas.manifest import NAMES as MANIFESTS
from schemas.manifest import StoredFeature, StoredGroups
from schemas.splits import SPARK_SCHEMA, UNPLACED_SCHEMA

PAGE = "_report.html"
# Ids and positions are all different, so a dictionary is useless. Version 2 writes positions as steps of one, which
# compress and decode at almost no cost.
_PARQUET = {
    "compression": "zstd",
    "parquet.writer.version": "PARQUET_2_0",
    "parquet.enable.dictionary#id": "false",
    "parquet.enable.dictionary#position": "false",
    "parquet.block.size": str(8 << 20),
}
_OLD = ("manifest.json", "report.html")  # as version 0.1 called them
# Whole, or as a killed writer leaves it.
_BESIDE = re.compile(
    r"_?report\.html|_croissant\.json|\.(_?manifest\.json|_?report\.html|_croissant\.json)\.[0-9a-f.]+"
)
_VALUES = re.compile(r"[^/]+/split=[0-9]+/\.?part-.*\.parquet(\.crc)?")
_GROUPS = "_groups"
_OF_GROUPS = re.compile(r"split=[0-9]+/\.?part-.*\.parquet(\.crc)?")
_SPLIT = re.compile(r"split=[0-9]+")
_PART = re.compile(r"\.?part-.*\.parquet(\.crc)?")


class SplitOutput(Attempt):
    """The output of a split folder."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        """Prepare the folder. Raises `OutputExistsError` unless it is free, or ``overwrite`` may replace its split.

        Files that do not belong to a split, complete or half-written, are never replaced.
        """
        super().__init__(address, what="split")
        otherwise = "use another folder with -o"
        self._check_free(
            old="split", manifests=MANIFESTS, is_ours=self._is_ours, overwrite=overwrite, otherwise=otherwise
        )
        try:
            self._storage.make_folder(self._attempt)
        except OSError as error:
            found = error.strerror or error
            raise OutputExistsError(
                f"Wanted a writable folder for the split at {self.address}. Found: {found}."
            ) from None

    def _is_ours(self, name: str) -> bool:
        if name in MANIFESTS:
            try:
                read_manifest(self._storage, name)
            except FormatVersionError as error:
                raise OutputExistsError(f"{error} Or use another folder.") from None
            except SchemaError:
                return False
            return True
        if _SPLIT.fullmatch(name):
            return all(_PART.fullmatch(file) for file in self._storage.files(name))
        if name == FEATURES:
            return all(_VALUES.fullmatch(file) for file in self._storage.files(name))
        if name == _GROUPS:
            return all(_OF_GROUPS.fullmatch(file) for file in self._storage.files(name))
        return bool(_BESIDE.fullmatch(name))

    @property
    def address(self) -> str:
        """The address of the split folder for messages."""
        return self._storage.address

    def write(self, spark: SparkSession, rows: DataFrame, *, has_position: bool) -> DataFrame:
        """Write rows of ``split, id, label`` and ``position`` aside, and return the rows that the files have now.

        There is one file per task and split. The rows of a task need not be sorted by split.
        """
        writer = rows.write.partitionBy("split").options(**_PARQUET)
        writer.parquet(self.aside("rows"))
        return spark.read.schema(SPARK_SCHEMA if has_position else UNPLACED_SCHEMA).parquet(self.aside("rows"))

    def write_groups(self, groups: DataFrame) -> dict[int, list[SplitFile]]:
        """Write the groups of each split, ``group, split``, aside, and return the files by split."""
        groups.select("group", "split").repartition(1).write.partitionBy("split").parquet(self.aside(_GROUPS))
        return self.files(_GROUPS)

    def files(self, of: str = "rows") -> dict[int, list[SplitFile]]:
        """The written files by split, with their numbers of rows from their footers.

        ``of`` is ``rows``, ``_groups``, or the title of a feature view. Paths are those that the files will have in the
        folder.
        """
        found: dict[int, list[SplitFile]] = defaultdict(list)
        before = {"rows": "", _GROUPS: f"{_GROUPS}/"}.get(of, f"{FEATURES}/{of}/")
        for path in self._storage.files(f"{self._attempt}/{of}"):
            folder, _, name = path.partition("/")
            if _SPLIT.fullmatch(folder) and _PART.fullmatch(name) and name.endswith(".parquet"):
                with self._storage.open(f"{self._attempt}/{of}/{path}") as file:
                    rows = pq.read_metadata(file).num_rows
                found[int(folder.partition("=")[2])].append(SplitFile(before + path, rows))
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
        """Move the files into the folder, and write the manifest last. Files that it does not name are removed.

        ``page`` is the report as HTML, ``stored`` has the features and ``groups`` the groups that were written aside.
        """
        manifest = SplitManifest(
            data_table=str(metadata.data_table),
            metadata_table=str(metadata.metadata_table),
            columns=metadata.columns,
            label_type=metadata.label_type,
            num_classes=1
            + max([*(label for part in splits for label in part.counts), *metadata.class_names], default=-1),
            class_names=dict(sorted(metadata.class_names.items())),
            has_position=plan.has_position,
            warnings=tuple(warnings),
            features=metadata.features,
            label_view=metadata.label_view,
            expires=metadata.expires,
            as_of=metadata.as_of,
            sequence=metadata.sequence,
            unfinished=metadata.unfinished,
            stored_features=tuple(stored),
            groups=groups,
            seed=plan.seed,
            options=plan.as_options(),
            splits=tuple(splits),
            created=created(),
            code_version=code_version(),
        )
        named = {file.path for part in manifest.splits for file in part.files}
        for path in sorted(named):
            self._storage.move(f"{self._attempt}/rows/{path}", path)
        values = {file.path for one in manifest.stored_features for part in one.splits for file in part.files}
        for path in sorted(values):
            self._storage.move(f"{self._attempt}/{path.removeprefix(f'{FEATURES}/')}", path)
        names = {file.path for part in (groups.splits if groups else ()) for file in part}
        for path in sorted(names):
            self._storage.move(f"{self._attempt}/{path}", path)
        named |= values | names
        self._storage.write_bytes(PAGE, page.encode())
        name = self.address.rpartition("/")[2]
        croissant.write(self._storage, croissant.SPLIT_NAME, croissant.split_croissant(manifest, name=name))
        self._storage.settle([*named, PAGE])
        self._storage.publish_text(MANIFEST, manifest.to_json())
        for old in _OLD:
            self._storage.remove(old)
        self._remove_stale()
        for folder in self._storage.names():
            ours = _PART if _SPLIT.fullmatch(folder) else {FEATURES: _VALUES, _GROUPS: _OF_GROUPS}.get(folder)
            for file in self._storage.files(folder) if ours else ():
                if ours and f"{folder}/{file}" not in named and ours.fullmatch(file):
                    self._storage.remove(f"{folder}/{file}")
        return manifest


class DictionaryOutput(SplitOutput):
    """A split dictionary in the making: a split folder beside it first, which goes when the file is there."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        """Prepare the file. Raises `OutputExistsError` if it exists, unless ``overwrite`` may replace it."""
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
        super().__init__(f"{folder}/.{self._name}.{secrets.token_hex(6)}", overwrite=False)

    def __exit__(self, *_: object) -> None:
        self._storage.remove("")

    @property
    def address(self) -> str:
        """The address of the file for messages."""
        return f"{self._beside.address}/{self._name}"

    def publish(self, splits: Sequence[SplitPart], **published: Any) -> SplitManifest:
        """Convert the folder to the file, atomically. The fingerprints are those of the file's rows."""
        manifest = super().publish(splits, **published)
        with TemporaryDirectory() as cache:
            folder = open_split(self._storage.address)
            rows = [folder.rows(part.index, cache=cache) for part in splits]
            write_dictionary(self._beside, self._name, manifest=manifest, splits=rows)
            prints = [fingerprint_of(index, of_split) for index, of_split in enumerate(rows)]
        for folder_of_killed in self._left:
            self._beside.remove(folder_of_killed)
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
    """Make the manifest's entries from the rows of `summarise`. A split without rows has an entry too.

    ``files`` has the files by split, and ``counts`` the images by class and split if labels are not in the files.
    Raises `EtlError` if positions are not 0..n-1, or if the footers of files have other numbers of rows than were read.
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
        found.append(
            SplitPart(
                index=index,
                rows=rows,
                counts=dict(sorted(labels.items())),
                fingerprint=split_fingerprint(seed=plan.seed, index=index, rows=rows, sums=added_up(of_split[index])),
                files=tuple(sorted(files.get(index, []), key=lambda file: file.path)),
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
