"""Splits with every pair of options of `split.py`, over a small table that has changed since other splits were made."""

import shutil
import uuid
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from etl.errors import EtlError
from jobs import split
from tests.support.pairs import Row, covering_rows
from tests.support.split_caches import ids, write_cache
from tests.support.split_folders import write_split_folder
from tests.support.split_promises import Image, Other, Promises, broken, read_split, refusal

NAMES = {0: "ant", 1: "bee", 2: "cat"}
TABLE = "table"
LEVELS: dict[str, list[Any]] = {
    TABLE: [None, "multi", "none"],
    "split_ratio": [None, "5,3,2", "1"],
    "folds": [None, "3"],
    "balance": [None, "uniform", "ant=2,bee=1,cat=0"],
    "per_class": [None, "9", "60"],
    "limit": [None, "31", "110"],
    "stratify": [None, "label,site", "site"],
    "group_column": [None, "patient", "phash"],
    "look_alike_bits": [None, "8"],
    "min_per_split": [None, "1"],
    "seed": [None, "-9"],
    "where": [None, "view = 'AP'"],
    "top": [None, "score=60%"],
    "exclude": [None, ["test:1"], ["test:1", "plain"]],
    "pin": [None, ["or_split=val:1"], ["or_split=val:1", "or_split=train:0"]],
    "extend": [None, "old"],
    "split_ofn": ["folder", "file.pckl"],
    "no_position": [None, True],
    "no_leak_check": [None, True],
    "overwrite": [None, True],
    "explain": [None, True],
}
"""The values of each option; the first means that it is not given.

`TABLE` is no option, but the labels of the images: a class each; "multi": several each; "none": no image has any.
"""

ELSEWHERE = {
    **dict.fromkeys(("json", "metrics_port", "metrics_host"), "changes only what is shown"),
    "metadata_ifn": "is given in every split here",
    **dict.fromkeys(
        ("data_table", "metadata_table", "metadata_ofn", "dataset", "id_col", "label_col", "data_col"),
        "needs tables: tests/integration/jobs/test_split.py",
    ),
    "features": "needs tables: tests/e2e/tables/test_features_of_splits.py",
    **dict.fromkeys(
        ("label_view", "labels_of_replaced", "as_of", "skip_replaced"),
        "needs tables: tests/e2e/tables/test_earlier_splits.py",
    ),
}
"""Options that choose the table. Splits of a cache do not have them."""


@dataclass(frozen=True)
class Refused:
    """Two options that contradict each other, with these values or any, and a part of the message."""

    first: tuple[str, Callable[[Any], bool]]
    second: tuple[str, Callable[[Any], bool]]
    message: str

    def applies(self, row: Row) -> bool:
        """Whether a row has both; values that are not given do not count."""
        return all(row.get(name) is not None and is_meant(row[name]) for name, is_meant in (self.first, self.second))


def _any(_: Any) -> bool:
    return True


def _without_label(columns: str) -> bool:
    return "label" not in columns.split(",")


def _with_label(columns: str) -> bool:
    return not _without_label(columns)


REFUSED = (
    *(
        Refused(("folds", _any), (name, _any), "Wanted folds, which have equal shares, or --")
        for name in ("split_ratio", "pin", "extend")
    ),
    Refused(("per_class", _any), ("balance", _any), "Wanted --per-class or a balance"),
    Refused(("stratify", _without_label), ("balance", _any), "Wanted label among the columns"),
    Refused(("stratify", _without_label), ("per_class", _any), "Wanted label among the columns"),
    Refused(("split_ratio", "1".__eq__), ("pin", _any), "Wanted pins to splits from 0 to 0"),
    Refused(("split_ratio", _any), ("extend", _any), "Wanted a ratio for each of the 2 splits"),
    *(Refused((TABLE, _any), (name, _any), "Wanted images of one class each") for name in ("balance", "per_class")),
    Refused((TABLE, _any), ("stratify", _with_label), "Wanted images of one class each"),
)
"""All pairs of options that `split.py` refuses, whatever the images are."""


def is_allowed(row: Row) -> bool:
    """Whether no two of the options contradict each other."""
    return not any(refused.applies(row) for refused in REFUSED)


BESIDES: list[Row] = [
    {TABLE: "multi", "split_ratio": "5,3,2", "min_per_split": "1", "split_ofn": "folder"},
    {TABLE: "multi", "folds": "3", "limit": "110", "seed": "-9", "split_ofn": "file.pckl"},
]
"""Several labels are stratified one by one only if there are no groups and no images with a given split."""


def cases() -> list[Row]:
    """Options, so that every pair of values occurs that is not refused, and `BESIDES`."""
    rows, impossible = covering_rows(LEVELS, is_allowed=is_allowed)
    assert not impossible
    rows += BESIDES
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def arguments(options: Row, *, cache: str, folder: Path) -> list[str]:
    """The command line; other splits and the output are in the folder."""
    found = ["--metadata-ifn", cache]
    for name, value in options.items():
        if name == TABLE:
            continue
        flag = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            is_place = name in ("exclude", "extend", "split_ofn")
            found += [flag] if one is True else [f"{flag}={folder / one if is_place else one}"]
    return found


def table(kind: str | None, *, is_new: bool) -> list[Image]:
    """The images, of a kind of `TABLE`; in the new one, some are deleted, some are new, and some have another label."""
    rows = []
    for number, one in enumerate(ids(168)):
        patient = number * 7 % 36
        label = (0, 0, 0, 0, 1, 1, 1, 2)[number % 8]
        if is_new and number % 29 == 3:
            label = (label + 1) % 3
        row = {
            "id": one,
            "label": label if kind is None else -1,
            "labels": sorted({label, 3 + number % 2} if number % 7 else set()) if kind == "multi" else None,
            "site": f"site {number % 3 % 2}",
            "patient": None if patient == 35 else f"patient {patient}",
            "phash": (patient * 0x9E3779B97F4A7C15 + (patient * 0xC2B2AE3D27D4EB4F >> 7)) % (1 << 63),
            "view": "PA" if number // 36 % 2 else "AP",
            "or_split": "val" if patient % 5 == 1 else "train",
            "score": None if number % 17 == 4 else float(number * 37 % 101),
        }
        is_there = number < 150 if not is_new else not (row["view"] == "PA" and patient % 4 == 2)
        rows += [row] if is_there else []
    return rows


CONDITIONS: dict[str, Callable[[Image], bool]] = {"": lambda _: True, "view = 'AP'": lambda row: row["view"] == "AP"}


@dataclass(frozen=True)
class Suite:
    """The new table's cache, other splits that were made of the old one, and what they contain."""

    spark: SparkSession
    folder: Path
    caches: dict[str | None, str]
    others: dict[str, Other]

    @classmethod
    def make(cls, spark: SparkSession, folder: Path) -> "Suite":
        """Make the caches and the other splits."""
        before = table(None, is_new=False)
        old = cls._cache(folder / "before", None, before)
        caches = {kind: cls._cache(folder / f"{kind}", kind, table(kind, is_new=True)) for kind in LEVELS[TABLE]}
        others = {}
        pins = ["or_split=val:1", "or_split=train:0"]
        for name, pin in (("test", []), ("old", pins)):
            options = {"group_column": "patient", "where": "view = 'PA'", "pin": pin, "split_ofn": name}
            plan, _ = split.parse_args(arguments(options, cache=old, folder=folder))
            split.run(spark, plan=plan)
            place = {one: index for index, rows in enumerate(read_split(folder / name)[1]) for one, *_ in rows}
            groups = defaultdict(set)
            for row in before:
                if row["id"] in place and row["patient"]:
                    groups[row["patient"]].add(place[row["id"]])
            others[name] = Other(place, "patient", groups)
        some = [row for row in before if row["patient"] in ("patient 3", "patient 4") and row["view"] == "AP"]
        write_split_folder(
            folder / "plain", [([uuid.UUID(bytes=row["id"]) for row in some], [row["label"] for row in some])]
        )
        others["plain"] = Other({row["id"]: 0 for row in some})
        return cls(spark, folder, caches, others)

    @staticmethod
    def _cache(folder: Path, kind: str | None, rows: list[Image]) -> str:
        columns = {key: [row[key] for row in rows] for key in rows[0] if key != "labels" or kind == "multi"}
        if kind is not None:
            columns["label"] = [None] * len(rows)
        return write_cache(folder, columns, names=NAMES, features=["phash@v1"], label_type=kind or "int")

    def faults(self, options: Row, *, number: int) -> list[str]:
        """Make a split with these options, and compare it with what they promise."""
        promises = Promises(table(options.get(TABLE), is_new=True), options, NAMES, CONDITIONS, self.others)
        name = f"{number}-{options['split_ofn']}"
        place = self.folder / name
        if options.get("overwrite") and place.suffix != ".pckl":
            shutil.copytree(self.folder / "test", place)
        expected = refusal(promises)
        try:
            report = self._made({**options, "split_ofn": name})
        except EtlError as error:
            if expected is not None:
                return [] if expected in str(error) else [f"refused: {error}; wanted: {expected}"]
            if "min_per_split" in options and "Wanted at least 1 images of each class" in str(error):
                rest = {key: value for key, value in options.items() if key not in ("min_per_split", "explain")}
                report = self._made({**rest, "split_ofn": name})
                found = broken(promises, place, report)
                few = [fault for fault in found if "fewer than 1" in fault]
                return [fault for fault in found if fault not in few] if few else [f"refused without need: {error}"]
            return [f"refused: {error}"]
        if expected is not None:
            return [f"not refused: {expected}"]
        if options.get("explain"):
            return broken(promises, None, report) + (
                ["--explain wrote a split"] if self._is_written(place, options) else []
            )
        return broken(promises, place, report)

    def _made(self, options: Row) -> Any:
        plan, others = split.parse_args(arguments(options, cache=self.caches[options.get(TABLE)], folder=self.folder))
        return (split.explain if _is_explained(others) else split.run)(self.spark, plan=plan)

    @staticmethod
    def _is_written(place: Path, options: Row) -> bool:
        return place.exists() and not options.get("overwrite")


def _is_explained(others: Namespace) -> bool:
    return bool(others.explain)
