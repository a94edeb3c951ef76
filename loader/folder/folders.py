"""Trees of class folders, ``DIR/CLASS/**/image``, as splits with the same ids, labels and order as the splits of
tables.
"""

import errno
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from formats.image_names import HIDDEN, OUTSIDE, is_hidden, left_out
from formats.splits.fingerprint import row_sums, split_fingerprint
from formats.splits.opened import SplitRows, counts_of, held_split
from formats.splits.seeded_order import SeededOrder
from loader.errors import OptionError, SplitError
from loader.folder.levels import ClassLevel, check_class_level, check_levels
from loader.splits import Split
from schemas import SplitPart
from schemas.identity import image_ids

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Folder(Split):
    """A tree of class folders, listed by `open_folder`.

    Attributes:
        paths: The files by position, relative to ``address``.
        skipped: The number of files that were left out, by reason.
    """

    paths: list[bytes] = field(default_factory=list, repr=False)
    skipped: Mapping[str, int] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Folder({self.address!r}: {len(self):,} images of {self.num_classes} classes)"


def open_folder(
    address: str | os.PathLike[str],
    *,
    dataset: str = "",
    or_split: str = "",
    seed: int = 0,
    class_level: ClassLevel | None = None,
) -> Folder:
    """List a tree of class folders on a local disk as a split, for `FolderSource`.

    Classes are the topmost folders, numbered in code-point order of their names, as ImageFolder numbers them. Files
    count at any depth if their names have an extension of an image, and neither they nor a folder above them begin with
    a dot; the others are counted in ``skipped``. Ids follow from
    ``dataset``, ``or_split`` and path. Positions follow from ids and ``seed``. So a split or a row list of the same
    images, with the same dataset, split name and seed, has the same fingerprint and the same epochs.

    A tree is refused if its folders look like splits, or like one folder around everything, because the labels would be
    wrong. The message shows the likely options. Symbolic links are followed; one that leads to a folder that it is in
    is refused.

    Args:
        address: The folder with the class folders.
        dataset: The dataset's name at the ingest, if ids should be those of the tables.
        or_split: The split folder's name at the ingest.
        seed: The seed of the order of positions.
        class_level: "top" takes the topmost folders as the classes in any case.

    Returns:
        The folder, with ids and labels by position.

    Raises:
        SplitError: There are no class folders, one has no image, a link leads upwards, or the classes are probably
            deeper.
        OptionError: An option is out of its range.
    """
    check_class_level(class_level)
    if not isinstance(dataset, str) or not isinstance(or_split, str):
        raise OptionError(f"Wanted dataset and or_split as names. Found: {dataset!r}, {or_split!r}")
    root = os.path.abspath(os.fsencode(address))
    skipped: Counter[str] = Counter()
    classes = _classes(root, skipped)
    number = image_ids(dataset, os.fsencode(or_split))
    counts: dict[str, int] = {}
    above = (_identity(root),)
    by_class = [sorted(_pictures(root, name, counts, skipped, above)) for name in classes]
    if class_level is None:
        check_levels(counts, place=os.fsdecode(root), call=partial(_call, os.fsdecode(root)))
    if empty := next((name for name, files in zip(classes, by_class, strict=True) if not files), None):
        raise SplitError(
            f"Wanted an image in each class folder of {os.fsdecode(root)}. Found: none in {os.fsdecode(empty)}"
        )
    paths = [path for files in by_class for path in files]
    labels = [label for label, files in enumerate(by_class) for _ in files]
    ids = np.frombuffer(b"".join(map(number, paths)), dtype=np.uint8).reshape(-1, 16)
    if skipped:
        told = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        log.info("%s: left out %s", os.fsdecode(root), told)
    found = _in_order(os.fsdecode(root), classes, paths, ids, np.array(labels, dtype=np.int32), seed)
    return replace(found, skipped=dict(skipped))


def _in_order(
    address: str,
    classes: list[bytes],
    paths: list[bytes],
    ids: NDArray[np.uint8],
    labels: NDArray[np.int32],
    seed: int,
) -> Folder:
    rows = len(ids)
    order = SeededOrder(rows, seed=seed)
    order.count(ids)
    places = order.places(ids)
    sorted_ids, numbers = np.empty_like(ids), np.empty(rows, dtype=np.int32)
    sorted_ids[places], numbers[places] = ids, np.arange(rows, dtype=np.int32)
    for piece in order.pieces():
        order.sort(sorted_ids[piece], numbers[piece])
    by_position = labels[numbers]
    sums = row_sums(sorted_ids, by_position, np.arange(rows, dtype=np.int64))
    fingerprint = split_fingerprint(seed=seed, index=0, rows=rows, sums=sums)
    part = SplitPart(index=0, rows=rows, counts=counts_of(labels), fingerprint=fingerprint, files=())
    by_id = SplitRows(sorted_ids, by_position)
    names = dict(enumerate(map(os.fsdecode, classes)))
    opened = held_split(address, [(part, by_id)], num_classes=len(classes), class_names=names)
    return Folder(opened, 0, by_id, data_table="", paths=[paths[one] for one in numbers])


def _classes(root: bytes, skipped: Counter[str]) -> list[bytes]:
    names = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                is_folder = _is_folder(entry, root)
                if is_folder and not is_hidden(entry.name):
                    names.append(entry.name)
                elif is_folder:
                    skipped.update({HIDDEN: len(_files(entry.path))})
                else:
                    skipped[left_out(entry.name, by_extension=True) or OUTSIDE] += 1
    except OSError as error:
        raise SplitError(f"Wanted a folder of class folders at {os.fsdecode(root)}. Found: {error.strerror}") from None
    if not names:
        raise SplitError(f"Wanted a folder for every class in {os.fsdecode(root)}. Found: no folders there")
    return sorted(names, key=os.fsdecode)


def _files(folder: bytes) -> list[bytes]:
    """The files at any depth below a folder."""
    return [file for _, _, files in os.walk(folder) for file in files]


def _pictures(
    root: bytes, folder: bytes, counts: dict[str, int], skipped: Counter[str], above: tuple[tuple[int, int], ...]
) -> list[bytes]:
    """The images below one folder, relative to the root; ``counts`` gets the number directly in each folder, and
    ``skipped`` that of other files, by reason. Raises `SplitError` for a link to one of the folders ``above``, or to
    itself.
    """
    found, below = [], []
    place = os.path.join(root, folder)
    if (here := _identity(place)) in above:
        raise _loop(root, place, "a link to a folder that it is in")
    with os.scandir(place) as entries:
        for entry in entries:
            path = folder + b"/" + entry.name
            is_folder = _is_folder(entry, root)
            if is_folder and is_hidden(entry.name):
                skipped.update({HIDDEN: len(_files(entry.path))})
            elif is_folder:
                below.append(path)
            elif (reason := left_out(entry.name, by_extension=True)) is not None:
                skipped[reason] += 1
            else:
                found.append(path)
    counts[os.fsdecode(folder)] = len(found)
    for path in below:
        found += _pictures(root, path, counts, skipped, (*above, here))
    return found


def _identity(folder: bytes) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino


def _is_folder(entry: os.DirEntry[bytes], root: bytes) -> bool:
    """Whether an entry is a folder, or a link to one. Raises `SplitError` for a link to itself."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _loop(root, entry.path, "a link to itself") from None


def _loop(root: bytes, link: bytes, what: str) -> SplitError:
    return SplitError(
        f"Wanted folders without a loop in {os.fsdecode(root)}. Found: {os.fsdecode(link)}, {what}. Remove the link."
    )


def _call(root: str, folder: str, split: str) -> str:
    named = f", or_split={split!r}" if split else ""
    return f"loader.open_folder({os.path.join(root, folder)!r}{named})"
