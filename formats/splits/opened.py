"""A split, opened once: what everything that reads splits asks, whether it is a folder, a dictionary, or in memory."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas import Columns
from schemas.manifest import SplitManifest, SplitPart

if TYPE_CHECKING:
    from formats.stores.storage import Storage


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """The rows of one split in the order of ``position``, read-only. Those of a split folder are memory-mapped, so
    opening takes no memory and the ranks of a host share pages.
    """

    ids: NDArray[np.uint8]  # UUIDs, uint8 ``(n, 16)``, big-endian
    labels: NDArray[np.int32] | None  # class numbers, int32 ``(n,)``; None if they are not known

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The labels; -1 for each row if they are not known."""
        return np.full(len(self.ids), -1, np.int32) if self.labels is None else self.labels


class Contents(Protocol):
    """Where the rows of splits are."""

    def rows(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> SplitRows:
        """The rows of one split, as `OpenSplit.rows`."""
        ...

    def checksums(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> NDArray[np.int64] | None:
        """The checksums of one split, as `OpenSplit.checksums`."""
        ...

    def by_class(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> NDArray[Any]:
        """The positions of one split, in the order of their labels, then ascending."""
        ...

    def find(self, part: SplitPart, image_id: bytes) -> tuple[int | None, int | None] | None:
        """The label and position of an image in one split, as `OpenSplit.find`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """Rows that are in memory, by split."""

    splits: tuple[SplitRows, ...]

    def rows(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> SplitRows:
        """The rows of one split."""
        return self.splits[part.index]

    def checksums(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> None:
        """None: what these rows come from has no checksums."""

    def by_class(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> NDArray[Any]:
        """The positions of one split, in the order of their labels, then ascending."""
        return np.argsort(self.splits[part.index].numbers, kind="stable")

    def find(self, part: SplitPart, image_id: bytes) -> tuple[int | None, int | None] | None:
        """The label and position of an image in one split."""
        rows = self.splits[part.index]
        same = (rows.ids == np.frombuffer(image_id, np.uint8)).all(axis=1).nonzero()[0]
        if not len(same):
            return None
        return None if rows.labels is None else int(rows.labels[same[0]]), int(same[0])


@dataclass(frozen=True, slots=True, eq=False)
class OpenSplit:
    """The splits at an address, opened by `formats.splits.opening.open_split`."""

    address: str  # for messages
    manifest: SplitManifest  # that of a split dictionary has no class names, options or times
    contents: Contents = field(repr=False)  # the rows
    storage: "Storage | None" = None  # the split folder; None for a dictionary, or for splits in memory

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the splits."""
        return [part.fingerprint for part in self.manifest.splits]

    def part(self, index: int) -> SplitPart:
        """The manifest's entry for one split. Raises IndexError."""
        splits = self.manifest.splits
        if not 0 <= index < len(splits):
            raise IndexError(f"Wanted a split from 0 to {len(splits) - 1} of {self.address}. Found: {index}")
        return splits[index]

    def rows(self, index: int, *, cache: str | os.PathLike[str] | None = None) -> SplitRows:
        """The rows of one split. Those of a folder are compared with the fingerprint when this host first reads them.
        ``cache`` is the folder of opened splits; None for the default. Raises IndexError, `DamagedError` if files and
        manifest disagree, and `StorageError`, also if the cache cannot be written.
        """
        return self.contents.rows(self.part(index), cache=cache)

    def checksums(self, index: int, *, cache: str | os.PathLike[str] | None = None) -> NDArray[np.int64] | None:
        """The checksums (`formats.checksums`) of the images of one split by position, int64 ``(n,)``, 0 where none is
        known; None if the split has none. Cache and errors are those of `rows`.
        """
        return self.contents.checksums(self.part(index), cache=cache)

    def by_class(
        self, index: int, *, cache: str | os.PathLike[str] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[Any]]:
        """The positions of one split by class: the class numbers that occur, ascending; where each begins among the
        positions, int64, and the end of the last; and the positions, of one class after another, ascending in each.
        Cache and errors are those of `rows`.
        """
        part = self.part(index)
        numbers = sorted(part.counts)
        starts = np.concatenate([[0], np.cumsum([part.counts[number] for number in numbers])])
        positions = self.contents.by_class(part, cache=cache)
        return np.array(numbers, dtype=np.int32), starts.astype(np.int64), positions

    def find(self, index: int, image_id: bytes) -> tuple[int | None, int | None] | None:
        """The label and position of an image, each None if it is not known; None if the image is not in the split. The
        files of a folder are read, and not copied to the cache. Raises IndexError, `DamagedError`, `StorageError`.
        """
        return self.contents.find(self.part(index), image_id)


def held_split(
    address: str,
    splits: Sequence[tuple[SplitPart, SplitRows]],
    *,
    num_classes: int,
    class_names: Mapping[int, str] | None = None,
    label_type: str = "int",
    data_table: str = "",
    metadata_table: str = "",
    columns: Columns | None = None,
) -> OpenSplit:
    """Splits whose rows are in memory, with a manifest that says no more than the arguments. ``address`` says in
    messages where they come from.
    """
    manifest = SplitManifest(
        data_table=data_table,
        metadata_table=metadata_table,
        columns=columns or Columns(),
        label_type=label_type,
        num_classes=num_classes,
        class_names=class_names or {},
        seed=0,
        options={},
        splits=tuple(part for part, _ in splits),
        created="",
        code_version="",
    )
    return OpenSplit(address, manifest, HeldRows(tuple(rows for _, rows in splits)))


def is_dictionary(address: str | os.PathLike[str]) -> bool:
    """Whether an address is that of a split dictionary: its name ends with ``.pckl`` or ``.pkl``, in any case."""
    return os.fspath(address).rstrip("/").lower().endswith((".pckl", ".pkl"))


def counts_of(labels: NDArray[np.int32]) -> dict[int, int]:
    """The number of rows of each class."""
    classes, counts = np.unique(labels, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))
