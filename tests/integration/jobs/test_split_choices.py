"""Splits by every option: groups, folds, conditions, pins, exclusions, growth; from a metadata cache."""

import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import loader
from etl.columns import exact_names
from etl.errors import OutputExistsError, TableError
from etl.splits.metadata_reading import open_metadata
from etl.splits.plan import Pin, SplitPlan, SplitRef, Top
from etl.splits.report import SplitReport
from etl.splits.taking_part import candidates, dealing_seed, of_others, strata_columns
from formats import NotASplitError, open_split
from jobs.split import explain, run
from schemas import Columns, TableName
from tests.support.split_caches import ids, write_cache
from tests.support.split_folders import write_split_folder

ROWS = 400
CLASSES = [0] * 200 + [3] * 120 + [4] * 60 + [9] * 20
NAMES = {0: "ant", 3: "bee", 4: "cat", 9: "dog"}
COLUMNS: dict[str, list[Any]] = {
    "id": ids(ROWS),
    "label": CLASSES,
    "or_split": ["val" if number % 5 == 0 else "train" for number in range(ROWS)],
    "width": [100 + number % 300 for number in range(ROWS)],
    "group_id": [f"patient {number * 7 % 90}" for number in range(ROWS)],
    "sha256": [bytes([number % 150]) for number in range(ROWS)],
}
LABELS = dict(zip(COLUMNS["id"], CLASSES, strict=True))


def column(name: str) -> dict[bytes, Any]:
    """A column by id."""
    return dict(zip(COLUMNS["id"], COLUMNS[name], strict=True))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choices")


@pytest.fixture(scope="module")
def cache(place: Path) -> str:
    return write_cache(place / "cache", COLUMNS, files=3, names=NAMES)


def plan(cache: str, out: Path, **options: Any) -> SplitPlan:
    """A plan over a cache; leaks are counted if a test needs that."""
    return SplitPlan(**{"metadata_in": cache, "out": str(out), "seed": 7, "has_leak_check": False, **options})


def members(out: Path) -> list[set[bytes]]:
    """The ids of each split; checks that its files have each of them once."""
    folder = open_split(out)
    found = []
    for part in folder.manifest.splits:
        rows = [bytes(i) for i in folder.rows(part.index, cache=out.parent / "opened").ids]
        assert len(set(rows)) == len(rows) == part.rows
        found.append(set(rows))
    return found


@pytest.fixture(scope="module")
def usual(spark: SparkSession, cache: str, place: Path) -> SplitReport:
    """The split that others exclude, extend and are compared with."""
    return run(spark, plan=plan(cache, place / "usual", has_leak_check=True))


def test_classes_are_divided_exactly_and_named(usual: SplitReport, place: Path) -> None:
    assert usual.rows == [320, 80]
    assert usual.counts == [{"ant": 160, "bee": 96, "cat": 48, "dog": 16}, {"ant": 40, "bee": 24, "cat": 12, "dog": 4}]
    assert usual.ideals == [320, 80]
    page = (place / "usual" / "_report.html").read_text()
    assert "bee" in page
    assert usual.fingerprints[0][:12] in page


def test_the_report_counts_values_that_occur_in_two_splits(usual: SplitReport, place: Path) -> None:
    inside = members(place / "usual")
    for name, kind in (("exact duplicates", "sha256"), ("groups of the source", "group_id")):
        values = [Counter(column(kind)[i] for i in split) for split in inside]
        shared = values[0].keys() & values[1].keys()
        images = sum(of_split[value] for value in shared for of_split in values)
        assert usual.leaks[name] == {"values in two splits": len(shared), "images with these": images}
        assert any(f"{images:,} images have the {kind} of an image in another" in warning for warning in usual.warnings)
    assert any("--group-column group_id keeps them together" in warning for warning in usual.warnings)


def test_groups_stay_whole_and_quotas_are_nearly_kept(spark: SparkSession, cache: str, place: Path) -> None:
    wanted = plan(cache, place / "groups", group_column="group_id", ratios=(Fraction(8), 1, 1), has_leak_check=True)
    report = run(spark, plan=wanted)
    inside = members(place / "groups")
    groups = [{column("group_id")[i] for i in split} for split in inside]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert not groups[1] & groups[2]
    assert sum(report.rows) == ROWS
    assert {report.leaks[name]["values in two splits"] for name in ("groups", "groups of the source")} == {0}
    assert max(abs(rows - ideal) for rows, ideal in zip(report.rows, (320, 40, 40), strict=True)) <= 5
    assert report.method.startswith("whole groups: a split is off by at most ")


def test_folds_have_the_sizes_of_stratified_k_folds_and_pair_up(spark: SparkSession, cache: str, place: Path) -> None:
    from sklearn.model_selection import StratifiedKFold

    report = run(spark, plan=plan(cache, place / "folds", folds=3))
    inside = members(place / "folds")
    everything = set(COLUMNS["id"])
    for fold in range(3):
        assert inside[2 * fold] | inside[2 * fold + 1] == everything
        assert not inside[2 * fold] & inside[2 * fold + 1]
    validation = inside[1::2]
    assert set().union(*validation) == everything
    theirs = [Counter(np.array(CLASSES)[test].tolist()) for _, test in StratifiedKFold(3).split(CLASSES, CLASSES)]
    ours = [Counter(LABELS[i] for i in split) for split in validation]
    for label in NAMES:
        assert sorted(fold[label] for fold in ours) == sorted(fold[label] for fold in theirs)
    assert sorted(map(len, validation)) == sorted(sum(fold.values()) for fold in theirs)
    assert [report.rows[2 * k + 1] for k in range(3)] == [len(split) for split in validation]
    assert "fold 2 validation" in (place / "folds" / "_report.html").read_text()


def test_folds_keep_groups_whole(spark: SparkSession, cache: str, place: Path) -> None:
    report = run(spark, plan=plan(cache, place / "group-folds", folds=4, group_column="group_id", seed=(1 << 63) - 1))
    assert str(report).splitlines()[-1].startswith(f"split {ROWS} images of 4 classes into ")
    validation = members(place / "group-folds")[1::2]
    groups = [{column("group_id")[i] for i in split} for split in validation]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 90  # none is in two folds
    assert sum(map(len, validation)) == ROWS
    assert max(map(len, validation)) - min(map(len, validation)) <= 5  # the largest group has five images


@pytest.fixture(scope="module")
def awkward(place: Path) -> str:
    """A cache with columns that are named like those of a job, or differ from such only in case."""
    names = ("LABEL", "fixed", "Fixed", "group", "labels", "expires", "stratum", "value_1", "a.b", "my `col`")
    numbers = {name: [str(row % 2) for row in range(ROWS)] for name in names}
    columns = {**COLUMNS, **numbers, "LABEL": COLUMNS["or_split"], "score": [row / 7 for row in range(ROWS)]}
    return write_cache(place / "awkward", columns)


def test_combinations_of_columns_with_any_names_are_divided_exactly(
    spark: SparkSession, awkward: str, place: Path
) -> None:
    wanted = plan(awkward, place / "strata", stratify=("label", "LABEL"), ratios=(Fraction(3), 1), has_leak_check=True)
    run(spark, plan=replace(wanted, where="fixed = Fixed AND width >= 0"))
    inside = members(place / "strata")
    cells = Counter((LABELS[i], column("or_split")[i]) for i in COLUMNS["id"])
    for stratum, images in cells.items():
        got = [sum((LABELS[i], column("or_split")[i]) == stratum for i in split) for split in inside]
        assert sum(got) == images
        assert abs(got[0] - images * 0.75) < 1


def chosen(spark: SparkSession, wanted: SplitPlan) -> tuple[set[bytes], list[str]]:
    """The ids of the selected images, and the warnings about other splits."""
    metadata = open_metadata(spark, plan=wanted, aside=None)
    rows = candidates(spark, metadata, plan=wanted, by={"label": "label"})
    found = [bytes(row["id"]) for row in rows.select("id").collect()]
    assert len(set(found)) == len(found)
    return set(found), of_others(spark, rows, plan=wanted, metadata=metadata)


def test_a_condition_chooses_rows(spark: SparkSession, cache: str, place: Path) -> None:
    found, _ = chosen(spark, plan(cache, place / "where", where="width >= 224 AND or_split = 'train'"))
    assert found == {i for i in LABELS if column("width")[i] >= 224 and column("or_split")[i] == "train"}


def test_groups_pins_and_the_highest_values_take_columns_with_any_names(
    spark: SparkSession, awkward: str, place: Path
) -> None:
    options = {"group_column": "my `col`", "pins": (Pin.parse("a.b=1:1"),), "top": Top.parse("score=50%")}
    with exact_names(spark):
        metadata = open_metadata(spark, plan=plan(awkward, place / "any", **options), aside=None)
        wanted = plan(awkward, place / "any", stratify=("fixed", "labels", "stratum"), **options)
        rows = candidates(spark, metadata, plan=wanted, by=strata_columns(metadata, plan=wanted)).collect()
    taken = [row for row in range(ROWS) if row >= CLASSES.index(CLASSES[row]) + CLASSES.count(CLASSES[row]) / 2]
    assert {bytes(row["id"]) for row in rows} == {COLUMNS["id"][row] for row in taken}
    assert len({row["group"] for row in rows}) == 2
    assert Counter(row["fixed"] for row in rows) == {None: 100, 1: 100}
    assert {(row["value_0"], row["value_1"], row["value_2"]) for row in rows} == {("0",) * 3, ("1",) * 3}


def test_held_out_images_are_never_used_again(spark: SparkSession, cache: str, place: Path, usual: SplitReport) -> None:
    """Images are assigned in another order than a split's, so the rest of a split is not a biased part of it."""
    rest = plan(cache, place / "rest", exclude=(SplitRef(str(place / "usual"), 1),))
    assert dealing_seed(rest) not in (7, dealing_seed(replace(rest, seed=8)))
    second = write_split_folder(place / "second", [([uuid.UUID(bytes=COLUMNS["id"][0])], [0])])
    two = (SplitRef(str(place / "usual")), SplitRef(str(second)))
    assert dealing_seed(replace(rest, exclude=two)) == dealing_seed(replace(rest, exclude=two[::-1] + two))
    report = run(spark, plan=rest)
    assert report.rows == [256, 64]
    assert set().union(*members(place / "rest")) == members(place / "usual")[0]
    (unchecked,) = report.warnings
    assert unchecked.endswith("has no such table")  # the tables of the cache do not exist


def test_groups_of_held_out_images_are_excluded_with_a_warning(spark: SparkSession, cache: str, place: Path) -> None:
    test = [number for number, label in enumerate(CLASSES) if number % 25 == 0]
    rows = [uuid.UUID(bytes=COLUMNS["id"][number]) for number in test], [CLASSES[number] for number in test]
    others = write_split_folder(place / "others", [rows], metadata_table="ks.others")
    (others / "_manifest.json").rename(others / "manifest.json")  # the name in version 0.1
    wanted = plan(cache, place / "no-group", exclude=(SplitRef(str(others)),), group_column="group_id")
    found, warnings = chosen(spark, wanted)
    known = {COLUMNS["group_id"][number] for number in test}
    assert found == {i for i in LABELS if column("group_id")[i] not in known}
    assert warnings == [f"{others} was made from ks.others, not from ks.metadata"]


def test_pinned_rows_go_to_their_split_and_the_rest_fills_the_quotas(
    spark: SparkSession, cache: str, place: Path
) -> None:
    pins = (Pin("or_split", "val", 1),)
    report = run(spark, plan=plan(cache, place / "pins", pins=pins, ratios=(Fraction(7), 3)))
    inside = members(place / "pins")
    assert {i for i in LABELS if column("or_split")[i] == "val"} <= inside[1]
    assert report.rows == [280, 120]
    assert report.counts[1] == {"ant": 60, "bee": 36, "cat": 18, "dog": 6}


def old_split(folder: Path, numbers: Sequence[int], *, split_of: Callable[[int], int]) -> Path:
    """A split of these images in the ratios 3:1, as made before."""
    parts = [[number for number in numbers if split_of(number) == split] for split in (0, 1)]
    rows = [([uuid.UUID(bytes=COLUMNS["id"][n]) for n in part], [CLASSES[n] for n in part]) for part in parts]
    return write_split_folder(folder, rows, metadata_table="ks.metadata", options={"split-ratio": "3,1"})


def test_a_split_grows_in_its_own_ratios_and_no_image_moves(spark: SparkSession, place: Path, cache: str) -> None:
    old = old_split(place / "old", range(100, ROWS), split_of=lambda number: int(number % 4 == 0))
    (old / "_manifest.json").rename(old / "manifest.json")  # the name in version 0.1
    report = run(spark, plan=plan(cache, place / "grown", extend=str(old)))  # a class that has grown by half since
    for before, after in zip(members(old), members(place / "grown"), strict=True):
        assert before <= after
    assert report.rows == [300, 100]
    assert report.counts[1] == {"ant": 50, "bee": 30, "cat": 15, "dog": 5}


def test_images_that_are_missing_from_a_split_that_grows_are_counted(spark: SparkSession, place: Path) -> None:
    """Also if new images were added to their groups, or the groups were hashed as values of another type."""
    old = old_split(place / "whole", range(300), split_of=lambda number: int(number * 7 % 90 % 4 == 0))  # by group
    manifest = json.loads((old / "_manifest.json").read_text())
    manifest["groups"] = {"column": "group_id", "kind": "binary", "splits": [[], []]}
    (old / "_manifest.json").write_text(json.dumps(manifest))
    since = write_cache(place / "later", {name: values[50:] for name, values in COLUMNS.items()}, names=NAMES)
    report = run(spark, plan=plan(since, place / "part", group_column="group_id", extend=str(old)))
    assert f"50 images of {old} are not among the images chosen now" in report.warnings
    assert any(f"50 images of {old} are no longer in" in warning for warning in report.warnings)
    for before, after in zip(members(old), members(place / "part"), strict=True):
        assert before.intersection(COLUMNS["id"][50:]) <= after


def test_caps_apply_per_class_and_in_total(spark: SparkSession, cache: str, place: Path) -> None:
    subset = explain(spark, plan=plan(cache, place / "never", ratios=(Fraction(1),), per_class=30))
    assert subset.counts == [{"ant": 30, "bee": 30, "cat": 30, "dog": 20}]
    assert any("1 class with fewer than 30 images: dog" in warning for warning in subset.warnings)
    assert any("one split: nothing is held out" in warning for warning in subset.warnings)
    weights = tuple((name, Fraction(weight)) for name, weight in zip(NAMES.values(), (1, 2, 0, 1), strict=True))
    weighted = explain(spark, plan=plan(cache, place / "never", balance=weights, limit=40))
    assert [sum(split.get(name, 0) for split in weighted.counts) for name in NAMES.values()] == [10, 20, 0, 10]
    assert weighted.rows == [32, 8]
    assert not (place / "never").exists()


LABEL_SETS = [sorted({number % 3, 3 + number % 7} if number % 11 else set()) for number in range(300)]


@pytest.mark.parametrize("most", [1_000_000, 10])
def test_images_of_several_labels_are_stratified_by_each(
    spark: SparkSession, place: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.splits.splitting.MOST_ONE_BY_ONE", most)
    columns = {"id": ids(300), "label": [None] * 300, "labels": LABEL_SETS}
    address = write_cache(place / f"multi-{most}", columns, label_type="multi")
    report = run(spark, plan=plan(address, place / f"multi-split-{most}", ratios=(Fraction(3), 1)))
    assert report.rows == [225, 75]
    sets = dict(zip(columns["id"], LABEL_SETS, strict=True))
    inside = members(place / f"multi-split-{most}")
    for label in range(10):
        got = [sum(label in sets[i] for i in split) for split in inside]
        assert report.counts[1][str(label)] == got[1]
        assert abs(got[0] - 0.75 * sum(got)) < (2 if most > 10 else 4)
    assert report.method.startswith("iterative" if most > 10 else "exact quotas by set of labels")


def test_balances_and_caps_need_images_of_one_class_each(spark: SparkSession, tmp_path: Path) -> None:
    several = write_cache(
        tmp_path / "several", {"id": ids(9), "label": [None] * 9, "labels": LABEL_SETS[:9]}, label_type="multi"
    )
    none = write_cache(tmp_path / "none", {"id": ids(10), "label": [None] * 10}, label_type="none")
    for address, match, options in (
        (several, r"one class each.*Found: ks\.metadata has images of several labels each", {"balance": "uniform"}),
        (several, r"one class each", {"per_class": 10}),
        (none, r"one class each.*Found: ks\.metadata has images without classes", {"balance": (Fraction(1),)}),
        (none, r"one class each, to stratify by\. Found: .* without classes", {"stratify": ("label",)}),
    ):
        with pytest.raises(TableError, match=match):
            run(spark, plan=plan(address, tmp_path / "out", **options))
    assert not (tmp_path / "out").exists()


def test_min_per_split_is_checked_on_the_actual_assignment(spark: SparkSession, tmp_path: Path) -> None:
    """Whole groups do not reach every split here, although the quotas would allow it."""
    kinds = {"id": ids(20), "label": [0, 1] * 10, "kind": ["a", "b"] * 10}
    grouped = write_cache(tmp_path / "grouped", kinds)
    wanted = plan(grouped, tmp_path / "out", group_column="kind", min_per_split=1, ratios=(Fraction(1), 1))
    with pytest.raises(TableError, match="at least 1 images of each class"):
        run(spark, plan=wanted)
    alone = write_cache(tmp_path / "alone", {**kinds, "label": [0] * 19 + [1]})
    with pytest.raises(TableError, match=r"1 images of each class .*; 1 has (0, 1|1, 0)\."):
        run(spark, plan=replace(wanted, metadata_in=alone, group_column=None, stratify=("kind",)))
    assert not (tmp_path / "out").exists()


def test_groups_of_images_with_several_labels_stay_whole(spark: SparkSession, place: Path) -> None:
    groups = [f"g{number % 60}" for number in range(300)]
    columns = {"id": ids(300), "label": [None] * 300, "labels": LABEL_SETS, "group_id": groups}
    address = write_cache(place / "multi-groups", columns, label_type="multi")
    report = run(spark, plan=plan(address, place / "multi-grouped", group_column="group_id", ratios=(Fraction(3), 1)))
    of = dict(zip(columns["id"], groups, strict=True))
    inside = [{of[i] for i in split} for split in members(place / "multi-grouped")]
    assert not inside[0] & inside[1]
    assert abs(report.rows[0] - 225) <= 5


def test_images_without_a_group_are_groups_of_their_own(spark: SparkSession, place: Path) -> None:
    blanks = [None, "", "  ", "\t\u00a0\u3000\n"]
    groups = [blanks[number % 4] if number < 80 else f"g{number % 4}" for number in range(100)]
    columns = {"id": ids(100), "label": [0] * 100, "group_id": groups}
    out = place / "ungrouped"
    wanted = plan(write_cache(place / "some-groups", columns), out, group_column="group_id", ratios=(Fraction(1), 1))
    report = run(spark, plan=replace(wanted, has_leak_check=True))
    assert report.rows == [50, 50]
    of = dict(zip(columns["id"], groups, strict=True))
    inside = [Counter(of[i] for i in split) for split in members(out)]
    assert all(min(split[blank] for split in inside) > 0 for blank in blanks)
    assert all(min(split[f"g{number}"] for split in inside) == 0 for number in range(4))
    told = "80 images without group_id (null, empty or blank): each is a separate group"
    assert told in report.warnings
    assert told in open_split(out).manifest.warnings
    assert report.leaks["groups of the source"] == {"values in two splits": 0, "images with these": 0}


def test_images_that_look_alike_stay_together(
    spark: SparkSession, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also through an image that takes no part. A column that only has the name of the feature has plain values."""
    middle = np.random.default_rng(3).integers(-(1 << 63), 1 << 63, 40).tolist()
    chains = [(value ^ 0b111, value, value ^ 0b111 << 40) for value in middle]  # the ends differ in 6 bits
    hashes = [value for chain in chains for value in chain] + [None] * 10
    columns = {"id": ids(130), "label": [0] * 130, "phash": hashes, "width": [number % 3 for number in range(130)]}
    address = write_cache(place / "look-alikes", columns, features=["phash@v2"])
    wanted = plan(address, place / "by-look", group_column="phash", where="width <> 1", ratios=(Fraction(1), 1))
    with caplog.at_level("INFO"):
        report = run(spark, plan=replace(wanted, has_leak_check=True))
    assert (sum(report.rows), report.leaks) == (87, {"groups": {"values in two splits": 0, "images with these": 0}})
    assert "120 images in groups of near duplicates" in caplog.messages
    assert "note: 7 images without near duplicates; each is a separate group" in caplog.messages
    assert not any("group" in warning for warning in report.warnings)
    assert explain(spark, plan=wanted).counts == report.counts
    run(spark, plan=replace(wanted, out=str(place / "look-folds"), folds=2, ratios=None, where=None))
    equal = replace(wanted, metadata_in=write_cache(place / "numbers", columns), out=str(place / "by-number"))
    run(spark, plan=equal)

    def torn(out: str, *, step: int) -> int:
        inside = members(place / out)[::step]
        pairs = [(columns["id"][number], columns["id"][number + 2]) for number in range(0, 120, 3)]
        return sum((one in inside[0]) != (other in inside[0]) for one, other in pairs)

    assert [torn("by-look", step=1), torn("look-folds", step=2)] == [0, 0]
    assert torn("by-number", step=1) > 5


def test_nan_and_null_are_values_to_stratify_by(spark: SparkSession, place: Path) -> None:
    scores = [(math.nan, None, 1.5)[number % 3] for number in range(60)]
    columns = {"id": ids(60), "label": [number // 30 for number in range(60)], "score": scores}
    address, out = write_cache(place / "scores", columns), place / "by-score"
    report = run(spark, plan=plan(address, out, stratify=("label", "score"), ratios=(Fraction(1), 1)))
    assert report.rows == [30, 30]
    assert "40 images have no score (null or NaN): they form separate strata" in report.warnings
    of = {i: str(score) for i, score in zip(columns["id"], scores, strict=True)}
    assert [Counter(of[i] for i in split) for split in members(out)] == [dict.fromkeys(["nan", "None", "1.5"], 10)] * 2


def test_a_dictionary_for_other_tools_has_the_same_splits(
    spark: SparkSession, cache: str, place: Path, usual: SplitReport
) -> None:
    file = place / "usual.pckl"
    (place / ".usual.pckl.0123456789ab" / "split=0").mkdir(parents=True)  # as left by a killed run
    report = run(spark, plan=plan(cache, file))
    assert (report.rows, report.out) == (usual.rows, str(file))
    assert [path.name for path in place.iterdir() if path.name.startswith(".usual")] == []
    for index in (0, 1):
        theirs = loader.open_split(file, index=index)
        ours = loader.open_split(place / "usual", index=index, cache=place / "opened")
        assert theirs.fingerprint == report.fingerprints[index]
        assert np.array_equal(theirs.ids, ours.ids)
        assert theirs.labels is not None
        assert ours.labels is not None
        assert np.array_equal(theirs.labels, ours.labels)
    with pytest.raises(OutputExistsError, match="Set --overwrite"):
        run(spark, plan=plan(cache, file))


def test_a_dictionary_with_too_many_rows_is_refused(
    spark: SparkSession, cache: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.splits.splitting.MAX_ROWS", 399)
    with pytest.raises(TableError, match=r"at most 399 images in a split dictionary\. Found: 400\. Write a folder"):
        run(spark, plan=plan(cache, place / "large.pkl"))
    assert not (place / "large.pkl").exists()


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"where": "width > 1000"}, TableError, "with --where 'width > 1000'. Found: none"),
    ({"where": "height > 1"}, TableError, "Found: 'height > 1'.*height"),
    ({"where": "width + 1"}, TableError, "Wanted a condition"),
    ({"where": "rand() > 0.5"}, TableError, "whose result changes"),
    ({"group_column": "patient"}, TableError, "Wanted the column patient"),
    ({"stratify": ("label", "colour")}, TableError, "Wanted the column colour"),
    ({"data_table": TableName("ks", "other")}, TableError, r"cache of ks\.other.*Found: one of ks\.data"),
    ({"folds": 11, "where": "width < 105"}, TableError, "Wanted 11 folds with images in each"),
    ({"where": "now() > '2020-01-01'"}, TableError, "whose result changes"),
    ({"columns": Columns(label="y")}, TableError, "cache of columns id, y, data at .*Found: one of id, label, data"),
    (
        {"exclude": (SplitRef("some.pckl"),)},
        TableError,
        r"a split folder .*Found: some\.pckl, a split dictionary",
    ),
    (
        {"pins": (Pin("or_split", "vall", 1),)},
        TableError,
        "for --pin or_split=vall:1. Found: none with 'vall' in or_split",
    ),
    ({"exclude": (SplitRef("nowhere"),)}, NotASplitError, "Wanted a split folder at"),
    (
        {"pins": (Pin("or_split", "val", 1), Pin("label", "0", 0))},
        TableError,
        "40 images.* would have to be in two",
    ),
]


@pytest.mark.parametrize(("options", "error", "match"), BAD, ids=[" ".join(options) for options, *_ in BAD])
def test_a_refused_split_publishes_nothing(
    spark: SparkSession, cache: str, tmp_path: Path, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        run(spark, plan=plan(cache, tmp_path / "out", **options))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_or_changed_cache_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def refused(address: str, match: str, **options: Any) -> None:
        with pytest.raises(TableError, match=match):
            run(spark, plan=plan(address, tmp_path / "out", **options))

    refused(str(tmp_path / "nowhere"), r"Found: no cache\.json there\. Make one with --metadata-ofn")
    refused(write_cache(tmp_path / "empty", {"id": [], "label": []}), "Found: an empty table")
    nulls = {"id": ids(4), "label": [0, None, 1, 1], "group_id": ["a", None, "b", "b"]}
    negative = {"id": ids(4), "label": [0, -1, 1, 1], "group_id": ["a", "a", "b", "b"]}
    for by in (None, ("group_id",)):
        place = tmp_path / f"by {by}"
        refused(write_cache(place / "nulls", nulls), r"Found: 1 without one\. Correct .*IS NOT NULL", stratify=by)
        refused(write_cache(place / "negative", negative), "Found: 1 images with a negative one", stratify=by)
    write_cache(tmp_path / "nulls", nulls)
    twice = write_cache(tmp_path / "twice", {"id": ids(6), "label": [0] * 6})
    table = pq.read_table(tmp_path / "twice" / "rows" / "00000.parquet")
    pq.write_table(pa.concat_tables([table, table.slice(0, 2)]), tmp_path / "twice" / "rows" / "00000.parquet")
    for where in (None, "label = 1"):  # which selects none of them
        refused(twice, "each id once. Found: 2 ids that occur more than once", where=where)
    with pytest.raises(TableError, match=r"each id once\. Found: 2 ids that occur more than once"):
        explain(spark, plan=plan(twice, tmp_path / "out"))
    others = write_cache(tmp_path / "others", {"id": ids(6), "label": [0] * 6})
    pq.write_table(
        table.set_column(1, "label", pa.array([0] * 5 + [1], pa.int32())),
        tmp_path / "others" / "rows" / "00000.parquet",
    )
    for where in (None, "label = 0"):
        refused(others, "Wanted the 6 rows that were written .*Found: 6 rows with other contents", where=where)
    manifest = json.loads((tmp_path / "empty" / "cache.json").read_text())
    (tmp_path / "empty" / "cache.json").write_text(json.dumps({**manifest, "format": 99}))
    refused(str(tmp_path / "empty"), "Found: format 99")
    expiring = write_cache(tmp_path / "expiring", {"id": ids(6), "label": [0] * 6, "expires": [datetime.now(UTC)] * 6})
    (tmp_path / "expiring" / "cache.json").write_text(
        (tmp_path / "expiring" / "cache.json").read_text().replace('"format": 2', '"format": 1')
    )
    refused(expiring, r"Found: format 1, .* images expire\. Make a new cache with --metadata-ofn")
    file = tmp_path / "nulls" / "rows" / "00000.parquet"
    file.write_bytes(file.read_bytes()[:-10])
    refused(str(tmp_path / "nulls"), r"Found: rows/00000\.parquet is damaged .*Make the cache again")
    assert not (tmp_path / "out").exists()


def test_extending_a_split_with_other_splits_is_refused(
    spark: SparkSession, cache: str, place: Path, usual: SplitReport
) -> None:
    wanted = plan(cache, place / "refused", extend=str(place / "usual"))
    with pytest.raises(TableError, match="ratio for each of the 2 splits"):
        run(spark, plan=replace(wanted, ratios=(Fraction(1), 1, 1)))
    beyond = (Pin("or_split", "val", 2),)
    with pytest.raises(TableError, match=r"pins to splits from 0 to 1\. Found: or_split=val:2"):
        run(spark, plan=replace(wanted, pins=beyond))
    assert not (place / "refused").exists()
