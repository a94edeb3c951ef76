"""The options of a source: the location and layout of images, and the origin of labels."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from formats.stores.s3 import check_address
from schemas.names import hidden_character
from schemas.tables import LABEL_TYPES, ClassNames, LabelType

Layout = Literal["tree", "tar", "webdataset", "parquet", "table"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ClassLevel = Literal["top"]
Read = Literal["random", "sequential"]

_PATTERN = re.compile(r"[{*?]")
_LABEL_FILES = (".csv", ".tsv", ".parquet", ".txt")
_ARCHIVES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """The options of a source.

    ``address`` is a local path or an address that fsspec supports. ``layout`` defaults to what the address suggests.
    ``root`` is a folder in the source: files outside are ignored, and names are relative to it. ``splits`` are split
    folders in ``root``; without them, all images have the split ``or_split``. Root and split folders may be nested
    (``outer/train``). ``class_level`` is "top" if the topmost folders are the classes whatever the shape of the tree.
    ``labels`` is a label file; ``path_column``, ``label_column`` and ``group_column`` are columns of that file or of a
    table of bytes, whose images are in ``image_column``. ``masks`` and ``arrays`` are folders with a file of the same
    relative name for each image. ``class_names`` says whether class names are names or numbers; with None, names of
    folders are names, and other labels are numbers if all of them are. Images with the label ``no_label`` are left out.
    ``read`` is how archives are read. Raises ValueError for invalid options and missing local
    files.
    """

    address: str
    layout: Layout | None = None
    root: str = ""
    splits: tuple[str, ...] = ()
    or_split: str = ""
    label_type: LabelType = "int"
    labels: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None
    image_column: str | None = None
    class_names: ClassNames | None = None
    no_label: str | None = None
    class_level: ClassLevel | None = None
    masks: str | None = None
    arrays: str | None = None
    read: Read = "random"

    def __post_init__(self) -> None:
        for name in ("address", "labels", "masks", "arrays"):
            value = getattr(self, name)
            check_address(value or "")
            if value is not None and is_local(value) and not (name == "address" and self.layout == "table"):
                object.__setattr__(self, name, os.path.abspath(value))  # executors have other working directories
        object.__setattr__(self, "root", _plain(self.root))
        object.__setattr__(self, "splits", tuple(map(_plain, self.splits)))
        self._check_labels()
        self._check_splits()
        self._check_columns()
        self._check_places()

    @property
    def kind(self) -> Layout:
        """The layout: the given one, or the one that the address suggests."""
        if self.layout is not None:
            return self.layout
        is_there = is_local(self.address) and os.path.exists(self.address)  # under this very name
        if _PATTERN.search(self.address.rpartition("/")[2]) and not is_there:
            return "webdataset"
        name = self.address.lower().rstrip("/")
        if name.endswith(_ARCHIVES):
            return "tar"
        return "parquet" if name.endswith(".parquet") else "tree"

    @property
    def by_folder(self) -> bool:
        """Whether the class of an image is its folder."""
        return self.label_type == "int" and self.labels is None and self.kind in ("tree", "tar")

    @property
    def base(self) -> str:
        """The folder of a tree to which names are relative."""
        return f"{self.address.rstrip('/')}/{self.root}" if self.root else self.address

    @property
    def split_names(self) -> list[bytes]:
        """The raw names of the split folders."""
        return [os.fsencode(split) for split in self.splits]

    @property
    def name(self) -> str:
        """The name of the source in rows: an address, ``file://`` and the real path if it is local, or ``table:NAME``.

        The root in an archive is appended after a ``#``: two roots of one archive are two sources.
        """
        if self.kind == "table":
            return f"table:{self.address}"
        if self.kind == "tree":
            return full_address(self.base)
        return full_address(self.address) + (f"#{self.root}" if self.root else "")

    def _check_labels(self) -> None:
        if self.label_type not in LABEL_TYPES:
            raise ValueError(f"Wanted a label type of {', '.join(LABEL_TYPES)}. Found: {self.label_type!r}")
        if self.label_type == "blob" and not self.masks and self.kind != "webdataset":
            raise ValueError("Wanted --masks DIR for labels that are masks. Found: none.")
        if self.label_type == "multi" and not self.arrays and self.kind != "webdataset":
            raise ValueError("Wanted --arrays DIR for labels that are arrays. Found: none.")
        if self.masks and self.label_type != "blob":
            raise ValueError(f"Wanted --masks with labels of type blob. Found: {self.label_type}.")
        if self.arrays and self.label_type != "multi":
            raise ValueError(f"Wanted --arrays with labels of type multi. Found: {self.label_type}.")
        if (self.masks or self.arrays) and self.kind in ("parquet", "table"):
            raise ValueError(f"Wanted --masks and --arrays with files. Found: a source that is a {self.kind}.")
        if self.class_level not in (None, *get_args(ClassLevel)):
            raise ValueError(f"Wanted a class level of {', '.join(get_args(ClassLevel))}. Found: {self.class_level!r}")
        if self.class_level and not self.by_folder:
            raise ValueError("Wanted --class-level where class folders are the labels. Found: labels from elsewhere.")
        for name, value in (("--class-names", self.class_names), ("--no-label", self.no_label)):
            if value is not None and self.label_type != "int":
                raise ValueError(f"Wanted {name} with class labels. Found: labels of type {self.label_type}.")
        if self.labels is not None and not self.labels.lower().endswith(_LABEL_FILES):
            raise ValueError(f"Wanted a label file, {', '.join(_LABEL_FILES)}. Found: {self.labels!r}")
        if self.labels is not None and self.kind in ("webdataset", "parquet", "table"):
            raise ValueError(f"Wanted the labels of a {self.kind} source in the source. Found: --labels too.")

    def _check_splits(self) -> None:
        for folder in (*self.splits, *filter(None, (self.root,))):
            if not folder or folder.startswith("/") or {"", ".", ".."} & {*folder.split("/")}:
                raise ValueError(f"Wanted the name of a folder in {self.address}, such as train or outer/train. Found: "
                                 f"{folder!r}")  # fmt: skip
        if len(set(self.splits)) < len(self.splits):
            raise ValueError(f"Wanted each split folder once. Found: {', '.join(self.splits)}")
        for outer in self.splits:
            if inner := next((split for split in self.splits if split.startswith(f"{outer}/")), None):
                raise ValueError(f"Wanted split folders that are not nested. Found: {inner}, which is in {outer}.")
        if self.root and self.kind not in ("tree", "tar"):
            raise ValueError(f"Wanted --root with a tree or a tar. Found: a source that is a {self.kind}.")
        if self.splits and self.kind not in ("tree", "tar"):
            raise ValueError(
                f"Wanted --split-name for a {self.kind} source, which has no folders. Found: --split-subdir."
            )
        if self.splits and self.or_split:
            raise ValueError("Wanted --split-subdir or --split-name. Found: both.")
        if hidden_character(self.or_split) or "/" in self.or_split or self.or_split in (".", ".."):
            raise ValueError(f"Wanted a split's name of printable characters without /. Found: {self.or_split!r}")

    def _check_columns(self) -> None:
        has_columns = self.labels is not None and not self.labels.lower().endswith(".txt")
        has_columns |= self.kind in ("parquet", "table")
        given = self.path_column or self.label_column or self.group_column
        if given and not has_columns:
            raise ValueError(f"Wanted a label file for the column {given!r}. Found: none. Set --labels.")
        if self.image_column and self.kind not in ("parquet", "table"):
            raise ValueError(f"Wanted --image-column with tables of bytes. Found: a source that is a {self.kind}.")
        if self.read == "sequential" and self.kind not in ("tar", "webdataset"):
            raise ValueError(f"Wanted --read sequential with tars. Found: a source that is a {self.kind}.")

    def _check_places(self) -> None:
        if self.kind == "tree":
            files = f" A file must be an archive ({', '.join(_ARCHIVES)}) or a table (.parquet)."
            _check_folder(self.address, mend=files if os.path.isfile(self.address) else "")
            _check_folder(self.base)
            for split in self.splits:
                mend = " Repeat --split-subdir for each of several folders." if "," in split else ""
                _check_folder(f"{self.base}/{split}", mend=mend)
        elif self.kind == "tar":
            _check_file(self.address)
        elif self.kind == "parquet" and is_local(self.address) and not os.path.exists(self.address):
            raise ValueError(f"Wanted Parquet files at {os.path.abspath(self.address)!r}. Found: nothing there.")
        for folder in filter(None, (self.masks, self.arrays)):
            _check_folder(folder)
        if self.labels is not None:
            _check_file(self.labels)


def _plain(folder: str) -> str:
    """The name of a folder without the leading ``./`` and trailing ``/`` that a shell adds."""
    return folder.removeprefix("./").removesuffix("/")


def is_local(address: str) -> bool:
    """Whether an address is a path in the local file system."""
    return "://" not in address


def full_address(address: str) -> str:
    """An address that does not depend on the working directory: a local path becomes ``file://`` and its real path."""
    return Path(os.path.realpath(address)).as_uri() if is_local(address) else address.rstrip("/")


def _check_folder(address: str, *, mend: str = "") -> None:
    if is_local(address) and not os.path.isdir(address):
        found = "a file" if os.path.exists(address) else "nothing there"
        raise ValueError(f"Wanted a folder at {os.path.abspath(address)!r}. Found: {found}.{mend}")


def _check_file(address: str) -> None:
    if is_local(address) and not os.path.isfile(address):
        found = "a folder" if os.path.isdir(address) else "nothing there"
        raise ValueError(f"Wanted a file at {os.path.abspath(address)!r}. Found: {found}.")
