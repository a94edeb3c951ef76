"""Split folders that Spark writes: complete, ordered, and put in place at the end or not at all."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.splits.dealing.steps import order_rows
from etl.splits.plan import Pin, SplitPlan, Top
from etl.splits.splitting import run
from formats import open_split
from formats.hashing import xxhash64
from tests.support.croissants import records
from tests.support.parquet_readers import READERS
from tests.support.split_caches import ids, write_cache

LABELS = [0] * 200 + [3] * 61 + [4] * 13 + [9]
IDS = ids(len(LABELS))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_cache(tmp_path_factory.mktemp("cache") / "rows", {"id": IDS, "label": LABELS}, files=2)


def plan(cache: str, out: Path, **options: object) -> SplitPlan:
    given = {"ratios": (Fraction(8), Fraction(2)), "seed": 7, "has_leak_check": False, **options}
    return SplitPlan(metadata_in=cache, out=str(out), **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def split(spark: SparkSession, cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Open a split folder."""
    out = tmp_path_factory.mktemp("a split") / "of rows"
    run(spark, plan=plan(cache, out))
    return out


def test_a_split_is_read_back_whole_in_seeded_order(split: Path, tmp_path: Path) -> None:
    folder, found = open_split(split), {}
    for index in (0, 1):
        rows = folder.rows(index, cache=tmp_path)  # recomputes the fingerprint in numpy
        hashes = xxhash64([np.full(len(rows), 7, dtype=np.int64), rows.ids])
        assert np.all(np.diff(hashes) > 0)
        found |= dict(zip(map(bytes, rows.ids), rows.labels.tolist(), strict=True))
    assert found == dict(zip(IDS, LABELS, strict=True))
    for library, read in READERS.items():  # the same rows, and the split from the folders' names
        rows = read(split)
        assert [(row[0], row[1]) for row in rows] == [(0, n) for n in range(220)] + [(1, n) for n in range(55)], library
        assert {row[2]: row[3] for row in rows} == found, library
    assert folder.manifest.options["split-ratio"] == "8,2"
    assert [part.rows for part in folder.manifest.splits] == [220, 55]
    assert [sum(part.counts.values()) for part in folder.manifest.splits] == [220, 55]


CHECKSUMS: list[int | None] = [None if n == 5 else n * 7919 - 99 for n in range(len(LABELS))]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"has_position": False},
        {"group_column": "patient"},
        {"folds": 3, "ratios": None},
        {"stratify": ("label", "site")},
        {"top": Top("width", count=100), "where": "width > 3"},
        {"balance": "uniform", "limit": 30},
        {"pins": (Pin.parse("site=s1:1"),), "has_leak_check": True},
        {"seed": 8, "stratify": ("labels",), "many": True},
    ],
    ids=lambda options: " ".join(options) or "usual",
)
def test_each_row_has_the_checksum_of_its_image(
    spark: SparkSession, tmp_path: Path, options: dict[str, object]
) -> None:
    count, is_many = len(LABELS), options.pop("many", False)
    columns = {
        "id": IDS,
        "label": [-1] * count if is_many else LABELS,
        "imagestrata:checksum": CHECKSUMS,
        "patient": [f"p{n % 50}" for n in range(count)],
        "site": [f"s{n % 3}" for n in range(count)],
        "width": list(range(count)),
        "xxhash64": ["theirs"] * count,
        **({"labels": [[n % 3, 4] for n in range(count)]} if is_many else {}),
    }
    rows = write_cache(tmp_path / "rows", columns, files=2, label_type="multi" if is_many else "int")
    run(spark, plan=plan(rows, tmp_path / "split", **options))
    split, wanted = open_split(tmp_path / "split"), dict(zip(IDS, CHECKSUMS, strict=True))
    lacking = 0
    for part in split.manifest.splits:
        ids = map(bytes, split.rows(part.index, cache=tmp_path).ids)
        found = split.checksums(part.index, cache=tmp_path)
        assert [wanted[one] or 0 for one in ids] == found.tolist()
        assert part.without_checksum == found.tolist().count(0)
        lacking += part.without_checksum
    assert lacking or "top" in options or "balance" in options


def test_a_split_without_positions_is_read_in_the_same_order(
    spark: SparkSession, cache: str, split: Path, tmp_path: Path
) -> None:
    out = tmp_path / "unplaced"
    run(spark, plan=plan(cache, out, has_position=False))
    placed, unplaced = open_split(split), open_split(out)
    assert not unplaced.manifest.has_position
    for index in (0, 1):
        assert placed.part(index).fingerprint != unplaced.part(index).fingerprint
        rows, same = (folder.rows(index, cache=tmp_path / "cache") for folder in (placed, unplaced))
        assert np.array_equal(rows.ids, same.ids)
        assert np.array_equal(rows.labels, same.labels)


def test_an_existing_split_is_replaced_whole_and_only_with_overwrite(
    spark: SparkSession, cache: str, split: Path, tmp_path: Path
) -> None:
    out = tmp_path / "split"
    shutil.copytree(split, out)
    (out / "split=0" / "part-00000-killed.zstd.parquet").touch()  # as left by killed runs
    (out / "_attempt-0123456789ab" / "rows").mkdir(parents=True)
    before = (out / "_manifest.json").read_bytes()
    with pytest.raises(OutputExistsError, match="--overwrite"):
        run(spark, plan=plan(cache, out))
    assert (out / "_manifest.json").read_bytes() == before
    report = run(spark, plan=plan(cache, out, overwrite=True))
    assert report.fingerprints == [part.fingerprint for part in open_split(split).manifest.splits]
    manifest = json.loads((out / "_manifest.json").read_text())
    named = {file["path"] for part in manifest["splits"] for file in part["files"]}
    assert {str(file.relative_to(out)) for file in out.rglob("*.parquet")} == named
    assert named.isdisjoint(file["path"] for part in json.loads(before)["splits"] for file in part["files"])
    assert sorted(path.name for path in out.iterdir()) == [
        "_croissant.json",
        "_manifest.json",
        "_report.html",
        "split=0",
        "split=1",
    ]


def test_a_split_folder_can_be_read_by_its_croissant_description(split: Path) -> None:
    found = {(int(one["split"]), one["position"]): (one["id"], one["label"]) for one in records(
        split / "_croissant.json", "samples"
    )}  # fmt: skip
    folder = open_split(split)
    for index, part in enumerate(folder.manifest.splits):
        rows = folder.rows(index, cache=split.parent / "cache-of-croissant")
        expected = [(bytes(id), label) for id, label in zip(rows.ids, rows.labels.tolist(), strict=True)]
        assert [found.pop((index, position)) for position in range(part.rows)] == expected
    assert not found


def test_a_failed_write_publishes_nothing_and_leaves_nothing(
    spark: SparkSession, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(rows: DataFrame, **options: object) -> DataFrame:
        """One image is lost between counting and writing."""
        return order_rows(rows, **options).where("position > 0")  # type: ignore[arg-type]

    monkeypatch.setattr("etl.splits.splitting.order_rows", lossy)
    with pytest.raises(EtlError, match="Wanted positions 0 to "):
        run(spark, plan=plan(cache, tmp_path / "split"))
    assert list(tmp_path.iterdir()) == []
