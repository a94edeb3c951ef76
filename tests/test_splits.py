"""Splits over DataFrames: exact, the same for any partitioning, and what is written is what was planned."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_rows import rows_of
from split_caches import write_cache

from etl.errors import EtlError, OutputExistsError, TableError, WeightsError
from etl.splits import choice
from etl.splits.metadata import CacheOutput, Metadata
from etl.splits.output import DictionaryOutput, SplitOutput, check_parts
from etl.splits.plan import SplitPlan
from etl.splits.shares import Shares, share
from formats import SplitFolder
from formats.hashing import xxhash64
from jobs.splits.methods import deal_strata
from jobs.splits.run import run
from jobs.splits.steps import deal, place
from jobs.splits.survey import survey
from schemas import SplitPart, TableName, image_id

CLASSES = {0: 200, 3: 61, 4: 13, 9: 1}
"""Rows by class number: uneven, with gaps between the numbers, one class with a single row."""

ROWS = [(image_id("test", b"", f"{c}/{n}".encode()).bytes, c) for c, rows in CLASSES.items() for n in range(rows)]


BY_LABEL = ("label",)


def plan(**options: object) -> SplitPlan:
    """A plan over tables that these tests never read."""
    given = {"out": "unused", "ratios": (Fraction(8), Fraction(2)), "seed": 7, **options}
    return SplitPlan(data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"), **given)  # type: ignore[arg-type]


def images(spark: SparkSession, rows: Sequence[tuple[bytes | None, int | None]] = ROWS) -> DataFrame:
    """Rows as the copy of a metadata table has them."""
    return rows_of(spark, [(bytearray(i) if i else None, c) for i, c in rows], "id BINARY, label INT")


def shares_of(rows: DataFrame, this: SplitPlan) -> Shares:
    """What each split gets of each class."""
    assert this.ratios is not None
    assert this.data_table is not None
    assert this.metadata_table is not None
    metadata = Metadata(
        rows=rows,
        data_table=this.data_table,
        metadata_table=this.metadata_table,
        columns=this.columns,
        label_type="int",
        class_names={},
    )
    strata = survey(rows, by=BY_LABEL, plan=this, metadata=metadata, splits=len(this.ratios))
    return share(strata, ratios=this.ratios, plan=this, names={})


def assigned(spark: SparkSession, rows: DataFrame, this: SplitPlan) -> list[tuple[int, bytes, int, int]]:
    """The whole way from images to positions: (split, id, label, position), sorted."""
    dealt = deal_strata(spark, rows, shares_of(rows, this), by=BY_LABEL, plan=this, keep=[])
    placed = place(spark, dealt.rows, sizes=dealt.sizes, seed=this.seed)
    return sorted((row["split"], bytes(row["id"]), row["label"], row["position"]) for row in placed.collect())


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> list[tuple[int, bytes, int, int]]:
    return assigned(spark, images(spark).coalesce(1), plan())


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_split_is_the_same_for_any_partitioning_and_any_order_of_the_input(
    spark: SparkSession, expected: list[tuple[int, bytes, int, int]], partitions: int
) -> None:
    shuffled = random.Random(partitions).sample(ROWS, len(ROWS))
    assert assigned(spark, images(spark, shuffled).repartition(partitions), plan()) == expected


@pytest.mark.parametrize("values", [1 << 64, 5])
def test_rows_are_dealt_in_order_wherever_that_order_puts_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    """Also where cuts do not lie where they are expected, and where rows share a place in the order."""
    shift = F.lit((1 << 62) + 1)
    order = F.xxhash64("id").bitwiseAND(shift) if values > 5 else F.pmod(F.xxhash64("id"), F.lit(values)) - shift
    monkeypatch.setattr(choice, "choice_order", lambda seed: order)
    rows = images(spark)
    in_order = sorted(
        (row["stratum"], row["choice"], bytes(row["id"]))
        for row in rows.select(F.col("label").alias("stratum"), order.alias("choice"), "id").collect()
    )
    quotas = {0: [33, 0, 67], 3: [1, 59, 1], 4: [0, 0, 0], 9: [0, 1, 0]}
    wanted = {}
    for stratum, of_split in quotas.items():
        ids = iter([i for s, _, i in in_order if s == stratum])
        wanted |= {i: split for split, number in enumerate(of_split) for i in islice(ids, number)}
    strata = rows.withColumn("stratum", F.col("label"))
    dealt = deal(spark, strata, free=CLASSES, quotas=quotas, splits=3, seed=7)
    assert {bytes(row["id"]): row["split"] for row in dealt.collect()} == wanted


def test_rows_that_are_others_than_were_counted_are_refused(spark: SparkSession) -> None:
    strata = images(spark).withColumn("stratum", F.col("label"))
    with pytest.raises(TableError, match="Wanted the rows that were counted before"):
        deal(spark, strata, free={**CLASSES, 9: 8}, quotas={9: [5]}, splits=1, seed=7)


def test_nothing_is_lost_or_doubled(expected: list[tuple[int, bytes, int, int]]) -> None:
    assert Counter((i, c) for _, i, c, _ in expected) == Counter(ROWS)


def test_counts_are_the_quota_matrix(expected: list[tuple[int, bytes, int, int]]) -> None:
    found = Counter((split, label) for split, _, label, _ in expected)
    assert {split: sum(n for (s, _), n in found.items() if s == split) for split in (0, 1)} == {0: 220, 1: 55}
    assert (found[0, 0], found[1, 0]) == (160, 40)
    assert found[0, 3] in (48, 49)
    assert found[0, 4] in (10, 11)
    assert found[0, 9] in (0, 1)


def test_positions_are_dense_and_follow_the_seeded_hash(expected: list[tuple[int, bytes, int, int]]) -> None:
    for split in (0, 1):
        rows = sorted((position, i) for s, i, _, position in expected if s == split)
        assert [position for position, _ in rows] == list(range(len(rows)))
        ids = np.frombuffer(b"".join(i for _, i in rows), dtype=np.uint8).reshape(-1, 16)
        hashes = xxhash64([np.full(len(ids), 7, dtype=np.int64), ids])
        assert np.all(np.diff(hashes) > 0)


def test_another_seed_makes_another_choice(spark: SparkSession, expected: list[tuple[int, bytes, int, int]]) -> None:
    other = assigned(spark, images(spark), plan(seed=8))
    assert {i for s, i, _, _ in other if s == 1} != {i for s, i, _, _ in expected if s == 1}
    assert Counter(s for s, *_ in other) == Counter(s for s, *_ in expected)


def test_where_a_row_stands_does_not_tell_its_class_when_balanced(spark: SparkSession) -> None:
    rows = [
        (image_id("t", b"", f"{c}/{n}".encode()).bytes, c) for c, size in ((0, 3000), (1, 300)) for n in range(size)
    ]
    found = assigned(spark, images(spark, rows), plan(balance="uniform", ratios=(Fraction(1),)))
    first_half = Counter(label for _, _, label, position in found if position < 300)
    assert len(found) == 600
    assert 110 < first_half[0] < 190  # half of 300, within five standard deviations


@pytest.mark.parametrize(
    ("balance", "totals"),
    [
        ("uniform", {0: 1, 3: 1, 4: 1, 9: 1}),
        ((Fraction(4), Fraction(2), Fraction(1), Fraction(0)), {0: 52, 3: 26, 4: 13}),
    ],
)
def test_balance_takes_these_many_of_each_class(spark: SparkSession, balance: object, totals: dict[int, int]) -> None:
    found = assigned(spark, images(spark), plan(balance=balance, ratios=(Fraction(1), Fraction(1), Fraction(2))))
    assert Counter(label for _, _, label, _ in found) == totals


def test_random_balance_repeats_with_its_seed(spark: SparkSession) -> None:
    first, again = (assigned(spark, images(spark).repartition(n), plan(balance="random")) for n in (1, 3))
    assert first == again
    assert 0 < len(first) < len(ROWS)


def test_many_splits_of_small_classes_are_exact(spark: SparkSession) -> None:
    many = plan(ratios=tuple(Fraction(1) for _ in range(25)))
    found = Counter(split for split, *_ in assigned(spark, images(spark), many))
    assert sorted(found) == list(range(25))
    assert set(found.values()) == {11}


def test_weights_of_the_wrong_count_say_which_classes_there_are(spark: SparkSession) -> None:
    with pytest.raises(WeightsError, match=r"weight for each of the 4 classes, numbered 0, 3, 4, 9\. Found: 3 weights"):
        shares_of(images(spark), plan(balance=(Fraction(1),) * 3))


def test_an_empty_table_is_refused(spark: SparkSession) -> None:
    with pytest.raises(TableError, match="Found: an empty table"):
        shares_of(images(spark, []), plan())


def test_null_labels_are_refused_and_counted(spark: SparkSession) -> None:
    with pytest.raises(TableError, match=r"ks\.metadata \(label\)\. Found: 2 without one"):
        shares_of(images(spark, [*ROWS[:5], (b"a" * 16, None), (b"b" * 16, None)]), plan())


def test_negative_labels_are_refused(spark: SparkSession) -> None:
    with pytest.raises(TableError, match="1 images with a negative one"):
        shares_of(images(spark, [*ROWS[:5], (b"a" * 16, -1)]), plan())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    columns = {"id": [i for i, _ in ROWS], "label": [c for _, c in ROWS]}
    return write_cache(tmp_path_factory.mktemp("cache") / "rows", columns, files=2, names={0: "zero"})


def write(spark: SparkSession, cache: str, out: Path, **options: object) -> list[str]:
    """Write the rows as a split folder; its fingerprints."""
    return run(spark, plan=plan(out=str(out), metadata_in=cache, **options)).fingerprints


def test_what_is_written_is_read_back_whole_in_order(
    spark: SparkSession, cache: str, tmp_path: Path, expected: list[tuple[int, bytes, int, int]]
) -> None:
    prints = write(spark, cache, tmp_path / "a split")
    assert write(spark, cache, tmp_path / "unplaced", has_position=False) != prints
    folder, unplaced = SplitFolder.open(tmp_path / "a split"), SplitFolder.open(tmp_path / "unplaced")
    for split in (0, 1):
        rows = folder.rows(split, cache=tmp_path / "cache")  # recomputes the fingerprint in numpy
        wanted = sorted((position, i, c) for s, i, c, position in expected if s == split)
        assert [bytes(i) for i in rows.ids] == [i for _, i, _ in wanted]
        assert rows.labels.tolist() == [c for _, _, c in wanted]
        same = unplaced.rows(split, cache=tmp_path / "cache")  # whose order the reader works out
        assert np.array_equal(rows.ids, same.ids)
        assert np.array_equal(rows.labels, same.labels)
    assert folder.manifest.options["split-ratio"] == "8,2"
    assert sum(folder.manifest.splits[0].counts.values()) == folder.manifest.splits[0].rows == 220


def test_a_split_that_is_there_is_refused_and_overwritten_when_told(
    spark: SparkSession, cache: str, tmp_path: Path
) -> None:
    out = tmp_path / "split"
    first = write(spark, cache, out)
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(OutputExistsError, match="--overwrite"):
        write(spark, cache, out)
    assert (out / "manifest.json").read_bytes() == before
    assert write(spark, cache, out, overwrite=True) == first
    assert write(spark, cache, out, overwrite=True, seed=8) != first
    manifest = json.loads((out / "manifest.json").read_text())
    named = {file["path"] for part in manifest["splits"] for file in part["files"]}
    found = {str(file.relative_to(out)) for file in out.rglob("*.parquet")}
    assert found == named
    assert not [name for name in out.iterdir() if name.name.startswith("_attempt")]


def test_a_folder_with_other_things_in_it_is_refused_even_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputExistsError, match=r"thesis\.tex"):
        SplitOutput(str(tmp_path), overwrite=True)


@pytest.mark.parametrize(
    "name", ["split=train/precious.parquet", "split=notes.txt", "split=0/notes.txt", "manifest.json"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_only_looks_like_a_split_is_never_replaced(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"name": "somebody else\'s"}')
    with pytest.raises(OutputExistsError, match="Name another folder"):
        SplitOutput(str(tmp_path), overwrite=overwrite)
    assert (tmp_path / name).read_text() == '{"name": "somebody else\'s"}'


def test_a_half_written_split_is_taken_over_only_when_told(spark: SparkSession, cache: str, tmp_path: Path) -> None:
    (tmp_path / "_attempt-fedcba987654").mkdir()
    with pytest.raises(OutputExistsError, match=r"half-written\. Give --overwrite"):
        SplitOutput(str(tmp_path), overwrite=False)
    (tmp_path / "split=0").mkdir()
    (tmp_path / "split=0" / "part-00000-killed.zstd.parquet").touch()
    (tmp_path / "_attempt-0123456789ab" / "rows").mkdir(parents=True)
    with pytest.raises(OutputExistsError, match=r"half-written\. Give --overwrite"):
        SplitOutput(str(tmp_path), overwrite=False)
    write(spark, cache, tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "report.html", "split=0", "split=1"]
    assert not (tmp_path / "split=0" / "part-00000-killed.zstd.parquet").exists()


def test_a_place_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputExistsError, match="Found: a file"):
        SplitOutput(str(tmp_path / "file"), overwrite=True)
    for kind in (SplitOutput, CacheOutput):
        with pytest.raises(OutputExistsError, match=r"a folder for the .*file/below\. Found: a file"):
            kind(str(tmp_path / "file" / "below"), overwrite=False)
    with pytest.raises(OutputExistsError, match="Found: a file"):
        DictionaryOutput(str(tmp_path / "file" / "below.pckl"), overwrite=False)
    with pytest.raises(OutputExistsError, match="that can be written"):
        SplitOutput("/proc/nope/split", overwrite=True)


def test_a_failed_attempt_leaves_no_new_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), SplitOutput(str(tmp_path / "new"), overwrite=False):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()


def test_a_newer_split_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(OutputExistsError, match=r"Found: format 99\..* Or name another folder"):
        SplitOutput(str(tmp_path), overwrite=True)


def test_a_failed_write_publishes_nothing_and_leaves_nothing(
    spark: SparkSession, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "split"
    with monkeypatch.context() as patch:
        # One image is lost between the count and the writing.
        patch.setattr("jobs.splits.run.place", lambda spark, rows, **k: place(spark, rows, **k).where("position > 0"))
        with pytest.raises(EtlError, match="Wanted positions 0 to "):
            write(spark, cache, out)
    assert not out.exists()
    write(spark, cache, out)  # what is left is no obstacle


def test_quotas_that_files_do_not_hold_are_named() -> None:
    part = SplitPart(index=0, rows=3, counts={0: 3}, fingerprint="", files=())
    with pytest.raises(EtlError, match="2 counts off, class 0 in split 0: wanted 4, found 3; split 0"):
        check_parts([part], sizes=[4], counts={0: (4,)})
