"""The promises of each option of `split.py`, in plain Python over dictionaries. It uses no code of the product."""

import json
import math
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Image = Mapping[str, Any]


@dataclass(frozen=True)
class Promises:
    """One split: the rows of its table, its options by name (absent if not given), and other splits by name.

    ``others`` has, by name of a split, the split of each id and of each group.
    """

    rows: Sequence[Image]
    options: Mapping[str, Any]
    names: Mapping[int, str]
    conditions: Mapping[str, Callable[[Image], bool]]
    others: Mapping[str, "Other"] = field(default_factory=dict)

    @property
    def group(self) -> str | None:
        """The column of groups."""
        return self.options.get("group_column")

    @property
    def splits(self) -> int:
        """The number of parts that images are divided into."""
        return len(self.ratios)

    @property
    def ratios(self) -> list[Fraction]:
        """The shares of the parts."""
        if folds := self.options.get("folds"):
            return [Fraction(1, int(folds))] * int(folds)
        given = self.options.get("split_ratio") or "8,2"
        numbers = [Fraction(text) for text in given.split(",")]
        return [number / sum(numbers) for number in numbers]

    def part(self) -> list[Image]:
        """The images that may be used: those of the conditions, without what is excluded."""
        rows = [row for row in self.rows if self.conditions[self.options.get("where") or ""](row)]
        if top := self.options.get("top"):
            column, _, share = top.partition("=")
            rows = [row for row in rows if row["id"] in _highest(rows, column, Fraction(share.rstrip("%")) / 100)]
        for ref in self.options.get("exclude", ()):
            name, _, index = ref.partition(":")
            other = self.others[name]
            ids = {one for one, split in other.ids.items() if index in ("", str(split))}
            groups = {row[self.group] for row in self.rows if self.group and row["id"] in ids}
            groups |= {group for group, splits in other.of(self.group).items() if not index or int(index) in splits}
            groups.discard(None)
            rows = [row for row in rows if row["id"] not in ids and not (self.group and row[self.group] in groups)]
        return rows

    def given(self, row: Image) -> set[int]:
        """The splits that an image must go to, by itself or by its group."""
        found = self._own(row)
        if self.group and row[self.group] is not None:
            for other in self.rows:
                if other[self.group] == row[self.group]:
                    found = found | self._own(other)
            if extended := self.options.get("extend"):
                found = found | self.others[extended].of(self.group).get(row[self.group], set())
        return found

    def _own(self, row: Image) -> set[int]:
        found = set()
        for pin in self.options.get("pin", ()):
            column, _, rest = pin.partition("=")
            value, _, split = rest.rpartition(":")
            if str(row[column]) == value:
                found.add(int(split))
        if (extended := self.options.get("extend")) and row["id"] in self.others[extended].ids:
            found.add(self.others[extended].ids[row["id"]])
        return found

    def label(self, row: Image) -> Any:
        """The class of an image; None for all if images are stratified by other columns only."""
        return row["label"] if "label" in self.by else None

    def strata(self, row: Image) -> tuple[Any, ...]:
        """The values by which an image is stratified."""
        return tuple(tuple(row[name]) if name == "labels" else row[name] for name in self.by)

    @property
    def by(self) -> list[str]:
        """The columns by which images are stratified."""
        usual = {"multi": "labels", "none": ""}.get(str(self.options.get("table")), "label")
        return list(filter(None, (self.options.get("stratify") or usual).split(",")))

    def labels(self, row: Image) -> list[int]:
        """The labels of an image, one or several."""
        of_image = [row["label"]] if row["labels"] is None else row["labels"]
        return [label for label in of_image if label >= 0]

    def name(self, label: int) -> str:
        """The name of a class."""
        return self.names.get(label, str(label))

    def counted(self, rows: Iterable[Image]) -> Counter[int]:
        """The number of images of each label."""
        return Counter(label for row in rows for label in self.labels(row))


@dataclass(frozen=True)
class Other:
    """A split that was made before: the split of each id, and the splits of each group."""

    ids: Mapping[bytes, int]
    column: str | None = None
    groups: Mapping[Any, set[int]] = field(default_factory=dict)

    def of(self, column: str | None) -> Mapping[Any, set[int]]:
        """The splits of groups, if they are of this column."""
        return self.groups if column is not None and column == self.column else {}


def _highest(rows: Sequence[Image], column: str, share: Fraction) -> set[bytes]:
    by_class = defaultdict(list)
    for row in rows:
        by_class[row["label"]].append(row)
    found = set()
    for of_class in by_class.values():
        ranked = sorted(of_class, key=lambda row: (row[column] is None, -(row[column] or 0), row["id"]))
        found |= {row["id"] for row in ranked[: math.ceil(share * len(ranked))] if row[column] is not None}
    return found


def read_split(place: Path) -> tuple[dict[str, Any] | None, list[list[tuple[bytes, Any, Any]]]]:
    """The manifest of a folder (None for a dictionary), and (id, label, position) of each split, from its files."""
    if place.suffix == ".pckl":
        told = pickle.loads(place.read_bytes())
        keys, labels = [one.bytes for one in told["row_keys"]], told["labels"].tolist()
        return None, [
            [(keys[row], labels[row], order) for order, row in enumerate(split.tolist())] for split in told["split"]
        ]
    manifest = json.loads((place / "_manifest.json").read_text())
    found = []
    for part in manifest["splits"]:
        rows: list[tuple[bytes, Any, Any]] = []
        for file in part["files"]:
            table = pq.ParquetFile(place / file["path"]).read().to_pydict()
            rows += zip(table["id"], table["label"], table.get("position", [None] * len(table["id"])), strict=True)
        found.append(rows)
    return manifest, found


def refusal(promises: Promises) -> str | None:
    """Part of the message with which a split must be refused, because its promises contradict each other; or None."""
    part = promises.part()
    if not part:
        return "Found: none"
    if any(len(promises.given(row)) > 1 for row in part):
        return "would have to be in two splits"
    extended = promises.options.get("extend")
    if extended:
        stay = Counter(promises.label(row) for row in part if row["id"] in promises.others[extended].ids)
        used = used_images(promises, part)
        limit = promises.options.get("limit")
        if any(images > used[label] for label, images in stay.items()) or (limit and int(limit) < stay.total()):
            return "because --extend keeps them"
    if not any(used_images(promises, part).values()):
        return "leave at least one image"
    return None


def used_images(promises: Promises, part: Sequence[Image]) -> dict[Any, int]:
    """The images to use of each class, before the limit."""
    counts = Counter(map(promises.label, part))
    used = dict(counts)
    balance = promises.options.get("balance") or "original"
    if balance == "uniform":
        used = dict.fromkeys(counts, min(counts.values()))
    elif "=" in balance:
        by_name = dict(item.split("=") for item in balance.split(","))
        weights = {label: Fraction(by_name[promises.names[label]]) for label in counts}
        scale = min(counts[label] / weight for label, weight in weights.items() if weight)
        used = {label: int(weight * scale) for label, weight in weights.items()}
    if cap := promises.options.get("per_class"):
        used = {label: min(images, int(cap)) for label, images in used.items()}
    return used


def broken(promises: Promises, place: Path | None, report: Any) -> list[str]:
    """The promises that a split does not keep, each as text.

    Args:
        promises: What was asked.
        place: The split; None if it was only explained.
        report: The job's report, with ``rows``, ``counts`` and ``unused``.

    Returns:
        The faults; empty if there are none.
    """
    part = promises.part()
    wanted = used_images(promises, part)
    total = sum(wanted.values())
    if limit := promises.options.get("limit"):
        total = min(total, int(limit))
    folds = promises.options.get("folds")
    found = []
    placed = report.rows[1::2] if folds else report.rows
    if sum(placed) != total:
        found.append(f"{sum(placed)} images, not {total}")
    if report.unused != len(part) - total:
        found.append(f"{report.unused} left out, not {len(part) - total}")
    by_class: Counter[str] = Counter()
    for counts in report.counts[1::2] if folds else report.counts:
        by_class.update(counts)
    for label, images in wanted.items() if None not in wanted else ():
        got, name = by_class[promises.names[label]], promises.names[label]
        if got > images or (total == sum(wanted.values()) and got != images):
            found.append(f"class {name} has {got}, not {images}")
        if total < sum(wanted.values()) and not promises.options.get("extend"):
            share = Fraction(images * total, sum(wanted.values()))
            found += [f"class {name} has {got}, not {float(share)}"] if abs(got - share) >= 1 else []
    if place is not None:
        found += _of_files(promises, part, place, report)
    return found


def _of_files(promises: Promises, part: Sequence[Image], place: Path, report: Any) -> list[str]:
    manifest, splits = read_split(place)
    table, folds, found = {row["id"]: row for row in part}, promises.options.get("folds"), []
    for index, rows in enumerate(splits):
        ids = {one for one, *_ in rows}
        if len(ids) < len(rows):
            found.append(f"split {index} has an image twice")
        if strange := ids - table.keys():
            found.append(f"split {index} has {len(strange)} images that may not be used")
            return found
        if any(label != table[one]["label"] for one, label, _ in rows):
            found.append(f"split {index} has wrong labels")
        if len(rows) != report.rows[index]:
            found.append(f"split {index} has {len(rows)} rows, the report says {report.rows[index]}")
        by_label = promises.counted(table[one] for one in ids)
        counts = {promises.name(label): n for label, n in by_label.items()}
        if counts != dict(report.counts[index]) and promises.by[:1] != ["site"]:
            found.append(f"split {index} has {counts}, the report says {report.counts[index]}")
        if manifest is not None:
            of_part = manifest["splits"][index]
            by_number = {str(label): n for label, n in by_label.items()}
            if (of_part["rows"], of_part["counts"]) != (len(rows), by_number):
                found.append(f"split {index}: the manifest has other counts")
        places = [where for *_, where in rows]
        if promises.options.get("no_position"):
            found += [f"split {index} has positions"] if any(where is not None for where in places) else []
        elif sorted(places) != list(range(len(rows))):
            found.append(f"positions of split {index} are not dense")
    inside = [{one for one, *_ in rows} for rows in splits]
    if folds:
        everything = set().union(*inside[1::2])
        if any(inside[2 * fold] != everything - inside[2 * fold + 1] for fold in range(int(folds))):
            found.append("a fold does not train on all others")
        inside = inside[1::2]
    if sum(map(len, inside)) != len(set().union(*inside)):
        found.append("an image is in two splits")
    split_of = {one: index for index, ids in enumerate(inside) for one in ids}
    return found + _of_places(promises, part, split_of)


def _of_places(promises: Promises, part: Sequence[Image], split_of: Mapping[bytes, int]) -> list[str]:
    """Faults of groups, of images with a given split, of quotas and of the least number of images."""
    found = []
    used = [row for row in part if row["id"] in split_of]
    given = {row["id"]: promises.given(row) for row in part}
    if wrong := [row for row in used if given[row["id"]] and given[row["id"]] != {split_of[row["id"]]}]:
        found.append(f"{len(wrong)} images are not in their given split")
    if extended := promises.options.get("extend"):
        old = promises.others[extended].ids
        if lost := [row for row in part if row["id"] in old and row["id"] not in split_of]:
            found.append(f"{len(lost)} images of the extended split are lost")
    elif used:
        found += _rates(promises, part, split_of, given)
    if least := int(promises.options.get("min_per_split") or 0):
        parts = [promises.counted(row for row in used if split_of[row["id"]] == one) for one in range(promises.splits)]
        if any(of_split[label] < least for label in promises.counted(used) for of_split in parts):
            found.append(f"a class has fewer than {least} images in a split")
    if promises.group:
        groups = defaultdict(set)
        for row in used:
            groups[row[promises.group]].add(split_of[row["id"]])
        groups.pop(None, None)
        if torn := [group for group, splits in groups.items() if len(splits) > 1]:
            found.append(f"{len(torn)} groups are in two splits")
        return found + _group_totals(promises, used, split_of, given)
    return found + _quotas(promises, used, split_of, given)


def _rates(
    promises: Promises, part: Sequence[Image], split_of: Mapping[bytes, int], given: Mapping[bytes, set[int]]
) -> list[str]:
    """Images with a given split are used at the rate of their stratum."""
    there: dict[Any, Counter[Any]] = defaultdict(Counter)
    kept: dict[Any, Counter[Any]] = defaultdict(Counter)
    for row in part:
        for counts in [there, *([kept] if row["id"] in split_of else [])]:
            counts[promises.strata(row)][next(iter(given[row["id"]]), None)] += 1
    return [
        f"of {images} images of {stratum} for split {split}, {kept[stratum][split]} are used"
        for stratum, of_stratum in there.items()
        for split, images in of_stratum.items()
        if split is not None
        and abs(kept[stratum][split] - Fraction(images * kept[stratum].total(), of_stratum.total())) >= 1
    ]


def _filled(total: int, ratios: Sequence[Fraction], held: Sequence[int]) -> list[Fraction]:
    """The ideal shares of a total, if some images are in splits already: the others are divided among the rest."""
    open_splits = set(range(len(ratios)))
    while True:
        rest = total - sum(held[split] for split in range(len(ratios)) if split not in open_splits)
        whole = sum(ratios[split] for split in open_splits)
        over = {split for split in open_splits if held[split] > rest * ratios[split] / whole}
        if not over:
            return [
                rest * ratios[split] / whole if split in open_splits else Fraction(held[split])
                for split in range(len(ratios))
            ]
        open_splits -= over


def _quotas(
    promises: Promises, used: Iterable[Image], split_of: Mapping[bytes, int], given: Mapping[bytes, set[int]]
) -> list[str]:
    """Each stratum, and without given splits also each class and each split, is its ideal rounded down or up."""
    found = []
    keys: list[Callable[[Image], Any]] = [promises.strata]
    if not any(given.values()):
        if promises.by == ["labels"]:  # each label as near as the others allow
            keys = []
            found += _label_quotas(promises, used, split_of)
        keys += [lambda row: "all"]
        if "label" in promises.by:
            keys += [lambda row: f"class {row['label']}"]
    for key in keys:
        cells: dict[Any, list[int]] = defaultdict(lambda: [0] * promises.splits)
        held: dict[Any, list[int]] = defaultdict(lambda: [0] * promises.splits)
        for row in used:
            cells[key(row)][split_of[row["id"]]] += 1
            for split in given[row["id"]]:
                held[key(row)][split] += 1
        for value, row in cells.items():
            ideals = _filled(sum(row), promises.ratios, held[value])
            found += [
                f"{value} has {images} in split {split}, not {float(ideal)}"
                for split, (images, ideal) in enumerate(zip(row, ideals, strict=True))
                if abs(images - ideal) >= 1
            ]
    return found


def _label_quotas(promises: Promises, used: Iterable[Image], split_of: Mapping[bytes, int]) -> list[str]:
    """Of several labels of an image, each is within two of its ideal."""
    parts = [promises.counted(row for row in used if split_of[row["id"]] == split) for split in range(promises.splits)]
    return [
        f"label {label} has {of_split[label]} in split {split}, not {float(images * ratio)}"
        for label, images in promises.counted(used).items()
        for split, (of_split, ratio) in enumerate(zip(parts, promises.ratios, strict=True))
        if abs(of_split[label] - images * ratio) > 2
    ]


def _group_totals(
    promises: Promises, used: Sequence[Image], split_of: Mapping[bytes, int], given: Mapping[bytes, set[int]]
) -> list[str]:
    """Splits are within two of the largest groups of their ideals, unless images have a given split."""
    if any(given.values()) or not used:
        return []
    largest = max(Counter(row[promises.group] or row["id"] for row in used).values())
    sizes = Counter(split_of[row["id"]] for row in used)
    return [
        f"split {split} has {sizes[split]} images, not about {float(len(used) * ratio)}"
        for split, ratio in enumerate(promises.ratios)
        if abs(sizes[split] - len(used) * ratio) > 2 * largest
    ]
