"""Labels from a file: tables of any kind, or one number per line, matched with their images."""

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from etl.errors import SourceError
from etl.sources.entries import ENTRIES
from etl.sources.labels.files import has_names, read_label_lines, read_labels
from etl.sources.labels.matching import check_lines, check_names, label_by_file, label_by_line, unmatched_labels
from tests.support.spark_rows import rows_of


def listed(spark: SparkSession, names: Sequence[tuple[bytes, bytes]], **reasons: str) -> DataFrame:
    """Entries of (split, path), each in a separate partition; ``reasons`` by the first letter of the path."""
    rows = []
    for split, path in names:
        reason = reasons.get(path[:1].decode("latin-1"))
        whole = bytearray(split + b"/" + path)
        rows.append((whole, bytearray(split), bytearray(path), "old", "g", whole, None, 1, None, None, None, reason))
    return rows_of(spark, rows, ENTRIES).repartition(3)


def table(path: Path, columns: Mapping[str, Any]) -> str:
    pq.write_table(pa.table(dict(columns)), path)
    return str(path)


def rows(labels: DataFrame) -> list[tuple[bytes, str | None, str | None]]:
    found = [(bytes(row.path), row.label, row.group) for row in labels.collect()]
    return sorted(found, key=str)


CSV = b'\xef\xbb\xbfname,more,class,who\na.jpg,1,cat,x\n"b,\n.jpg",2,"dog ""s""",\n\xff.jpg,3,NA,y\nc.jpg,4,,z\n\n'


CSV_ROWS = sorted(
    [
        (b"a.jpg", "cat", "x"),
        (b"b,\n.jpg", 'dog "s"', ""),
        (b"\xff.jpg", "NA", "y"),
        (b"c.jpg", "", "z"),
    ],
    key=str,
)


def test_text_tables_are_read_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    tabs = CSV.replace(b"b,\n", b"b|\n").replace(b",", b"\t").replace(b"|", b",")
    found = []
    for name, data in (("l.csv", CSV), ("L.CSV", CSV), ("l.tsv", tabs)):
        (tmp_path / name).write_bytes(data)
        address = str(tmp_path / name)
        table = read_labels(spark, address, path_column="name", label_column="class", group_column="who")
        found.append(table.rows)
    assert rows(reduce(DataFrame.unionByName, found)) == sorted(3 * CSV_ROWS, key=str)


PATHS = ["a.jpg", "b.jpg"]


COLUMNS: dict[str, tuple[Any, list[str | None]]] = {  # a column of labels, and how it is read
    "text": (["cat", None], ["cat", None]),
    "short": (pa.array([7, 8], pa.uint16()), ["7", "8"]),
    "gaps": (pa.array([7.0, None]), ["7", None]),
    "known": (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    "large": (pa.array(["x", "y"], pa.large_string()), ["x", "y"]),
    "bytes": (pa.array([b"x", "\u00e9".encode()]), ["x", "\u00e9"]),
    "truth": ([True, None], ["True", None]),
}


@pytest.mark.parametrize("paths", [PATHS, pa.array(PATHS).dictionary_encode(), pa.array([b"a.jpg", b"b.jpg"])])
def test_parquet_label_columns_may_be_text_or_integers(spark: SparkSession, tmp_path: Path, paths: Any) -> None:
    address = table(tmp_path / "l.parquet", {"path": paths} | {name: column for name, (column, _) in COLUMNS.items()})
    found = [read_labels(spark, address, path_column="path", label_column=name).rows for name in COLUMNS]
    read = [labels for _, labels in COLUMNS.values()]
    wanted = [(path.encode(), label, None) for labels in read for path, label in zip(PATHS, labels, strict=True)]
    assert rows(reduce(DataFrame.unionByName, found)) == sorted(wanted, key=str)


def test_unreadable_label_files_are_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    def refused(name: str, data: bytes | None, **columns: Any) -> str:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SourceError) as caught:
            read_labels(spark, str(path), **{"path_column": "path", "label_column": "label", **columns})
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(str(tmp_path), "DIR")

    def unreadable(name: str) -> str:
        return f"Wanted a readable label file at DIR/{name}. Found: "

    mend = "Set --path-column, --label-column and --group-column."
    once = "Wanted the column 'label' once in DIR/a.csv. Found: "
    assert refused("a.csv", b"path,Label\n") == f"{once}path, Label. {mend}"
    assert refused("a.csv", b"path,label,label\n") == f"{once}path, label, label. {mend}"
    assert "'g' once" in refused("a.csv", b"path,label\n", group_column="g")
    assert refused("b.csv", None).endswith("DIR/b.csv. Found: nothing there.")
    assert "DIR/c.csv. Found: an empty file. Write" in refused("c.csv", b"")
    assert "DIR/d.csv, as in its first. Found: 3, in the row that begins on line 2" in refused(
        "d.csv", b"path,label\na,b,c\n"
    )
    assert refused("e.parquet", b"junk junk junk").startswith(unreadable("e.parquet"))
    assert "DIR/f.csv. Found: UTF-16. " in refused("f.csv", b"\xff\xfep\0")
    table(tmp_path / "g.parquet", {"path": PATHS, "label": [["x"], ["y"]]})
    assert refused("g.parquet", None).endswith("'label' of DIR/g.parquet. Found: list<element: string>.")


def test_damage_later_in_a_label_file_fails_the_task(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "l.parquet"
    table(path, {"path": PATHS, "label": ["cat"] * len(PATHS)})
    at = pq.read_metadata(path).row_group(0).column(1).dictionary_page_offset
    data = path.read_bytes()
    path.write_bytes(data[:at] + b"\xff" * 30 + data[at + 30 :])
    labels = read_labels(spark, str(path)).rows
    with pytest.raises(
        PySparkException, match=r"(?m)^etl\.errors\.SourceError: Wanted a readable label file at .*l\.parquet"
    ):
        labels.count()


LABELS = [
    (b"a.jpg", "cat", None),
    (b"a.jpg", "cat", None),
    (b"train/b.jpg", "dog", "g1"),
    (b"c.jpg", "cat", "g1"),
    (b"c.jpg", "dog", "g1"),
    (b"d.jpg", "cat", "g1"),
    (b"val/d.jpg", "dog", "g2"),
    (b"e.jpg", "  ", None),
    (b"f.jpg", None, None),
    (b"g.jpg", "cat", "g1"),
    (b"g.jpg", "cat", "g2"),
    (b"\xff.jpg", "cat", None),
    (b"x.jpg", "bad", None),
    (b"none.jpg", "cat", None),
    (b"none.jpg", "dog", None),
    (b"test/a.jpg", "dog", None),
]


IMAGES = [
    *((b"train", path) for path in (b"a.jpg", b"b.jpg", b"c.jpg", b"d.jpg", b"e.jpg", b"f.jpg", b"g.jpg", b"h.jpg")),
    *((b"val", path) for path in (b"a.jpg", b"b.jpg", b"d.jpg", b"x.jpg", b"\xff.jpg", b"\xfe.jpg")),
    (b"", b"train/b.jpg"),
]


def test_each_image_gets_the_label_of_its_row(spark: SparkSession) -> None:
    entries = listed(spark, IMAGES, x="link loop: it leads to itself")
    labels = rows_of(
        spark, [(bytearray(path), *rest) for path, *rest in LABELS], "path BINARY, label STRING, group STRING"
    )
    found = entries.transform(label_by_file, labels=labels, name="l.csv")
    assert found.schema.simpleString() == entries.schema.simpleString()
    got = {(bytes(row.or_split), bytes(row.path)): (row.or_label, row.group_id, row.reason) for row in found.collect()}
    missing = (None, None, "no label: not in l.csv")
    assert got == {
        (b"train", b"a.jpg"): ("cat", "g", None),
        (b"train", b"b.jpg"): ("dog", "g1", None),
        (b"train", b"c.jpg"): (None, None, "two labels: cat and dog in l.csv"),
        (b"train", b"d.jpg"): ("cat", "g1", None),
        (b"train", b"e.jpg"): (None, None, "no label: empty in l.csv"),
        (b"train", b"f.jpg"): (None, None, "no label: empty in l.csv"),
        (b"train", b"g.jpg"): (None, None, "two groups: g1 and g2 in l.csv"),
        (b"train", b"h.jpg"): missing,
        (b"val", b"a.jpg"): ("cat", "g", None),
        (b"val", b"b.jpg"): missing,
        (b"val", b"d.jpg"): (None, None, "two labels: cat and dog in l.csv"),
        (b"val", b"x.jpg"): ("bad", "g", "link loop: it leads to itself"),
        (b"val", b"\xff.jpg"): ("cat", "g", None),
        (b"val", b"\xfe.jpg"): missing,
        (b"", b"train/b.jpg"): ("dog", "g1", None),
    }
    names = entries.transform(unmatched_labels, labels=labels).collect()
    assert sorted(row.name for row in names) == ["none.jpg", "test/a.jpg"]


KAGGLE = b"""ImageId,PredictionString
v_2,n03995372 85 1 499 272
v_1," n01 1 2 3 4 n01 5 6 7 8 "
val/v_3,n02 1 2 3 4
v.4,n02 1 2 3 4
v_5,
v_6,n03 1 2 3 4
gone,n03 1 2 3 4
"""


def test_the_label_file_of_imagenet_from_kaggle_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "LOC.csv").write_bytes(KAGGLE)
    address = str(tmp_path / "LOC.csv")
    labels, _, by_stem = read_labels(spark, address)
    assert by_stem
    images = [*(f"v_{number}.JPEG".encode() for number in range(1, 6)), b"v.4", b"v_6.png", b"v_6.JPG"]
    entries = listed(spark, [(b"val", name) for name in images])
    found = entries.transform(label_by_file, labels=labels, name="LOC.csv", by_stem=True)
    assert found.columns == entries.columns
    twice = (None, "no label: images of the same name without extension, as names are in LOC.csv")
    assert {bytes(row.path): (row.or_label, row.reason) for row in found.collect()} == {
        b"v_1.JPEG": ("n01", None),
        b"v_2.JPEG": ("n03995372", None),
        b"v_3.JPEG": ("n02", None),
        b"v_4.JPEG": (None, "no label: not in LOC.csv"),
        b"v.4": ("n02", None),
        b"v_5.JPEG": (None, "no label: empty in LOC.csv"),
        b"v_6.png": twice,
        b"v_6.JPG": twice,
    }
    names = entries.transform(unmatched_labels, labels=labels, by_stem=True).collect()
    assert [row.name for row in names] == ["gone"]
    check_names(found, labels=labels, name="LOC.csv")


def test_lines_of_a_name_and_a_number_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "val.txt"
    path.write_bytes(b"\xef\xbb\xbfn1/v_1.JPEG 65\nv_2.JPEG 970\n")
    assert has_names(spark, str(path))
    assert rows(read_labels(spark, str(path)).rows) == [(b"n1/v_1.JPEG", "65", None), (b"v_2.JPEG", "970", None)]
    for other in (b"490\n361\n", b"ILSVRC2012_val_00000001 1\n", b"v_2.JPEG n01\n", b""):  # the second has positions
        path.write_bytes(other)
        assert not has_names(spark, str(path))
    path.write_bytes("v_2.JPEG 970\n".encode("utf-16"))
    with pytest.raises(SourceError, match=r"val\.txt\. Found: UTF-16\. Save it as UTF-8\."):
        has_names(spark, str(path))


@pytest.mark.parametrize(
    ("row", "images", "message"),
    [
        (b"a.png", [b"a.jpg", b"b.jpg"], "'a.png' in l.csv, 'val/a.jpg' in the source. The extensions differ."),
        (b"x.jpg", [b"a.jpg"], "'x.jpg' in l.csv, 'val/a.jpg' in the source. The names differ even without folders"),
        (b"train/a.jpg", [b"a.jpg"], "The names begin with train/, but the images are in val/."),
        (b"a.jpg", [b"n1/a.jpg", b"n2/a.jpg"], "Leave out --labels if these folders are the classes"),
        (b"a.jpg", [b"n1/a.jpg", b"n1/a.png", b"n2/a.jpg"], "Leave out --labels if these folders are the classes"),
        (
            b"a.jpg",
            [b"n1/a.jpg"],
            "The images are in n1/, which is not in the names. Set --root n1, or write full paths",
        ),
    ],
)
def test_rows_that_are_all_of_no_image_are_refused_with_the_likely_cause(
    spark: SparkSession, row: bytes, images: list[bytes], message: str
) -> None:
    labels = rows_of(spark, [(bytearray(row), "cat", None)], "path BINARY, label STRING, group STRING")
    found = listed(spark, [(b"val", name) for name in images]).transform(label_by_file, labels=labels, name="l.csv")
    with pytest.raises(SourceError) as caught:
        check_names(found, labels=labels, name="l.csv")
    assert f"Found: 1 rows and {len(images)} files with no common names: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(("rows", "by_stem"), [([b"a.jpg", b"b"], False), ([b"a", b"b.jpg"], True)])
def test_names_of_which_only_some_have_extensions_are_refused(
    spark: SparkSession, rows: list[bytes], by_stem: bool
) -> None:
    labels = rows_of(spark, [(bytearray(row), "cat", None) for row in rows], "path BINARY, label STRING, group STRING")
    entries = listed(spark, [(b"val", b"a.jpg"), (b"val", b"b.jpg")])
    found = entries.transform(label_by_file, labels=labels, name="l.csv", by_stem=by_stem)
    with pytest.raises(
        SourceError, match=rf"Found: '{rows[1].decode()}' for val/b\.jpg, and names with(out)? extensions"
    ):
        check_names(found, labels=labels, name="l.csv", by_stem=by_stem)
    # Files without extensions match rows without extensions.
    both = entries.union(listed(spark, [(b"val", b"b")]))
    if not by_stem:
        check_names(both.transform(label_by_file, labels=labels, name="l.csv"), labels=labels, name="l.csv")


def test_label_lines_are_assigned_to_files_in_name_order(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "truth.txt"
    path.write_bytes(b"\xef\xbb\xbf490\r\n 361 \n007\n-1\n+5\n\n \n")
    lines = read_label_lines(spark, str(path))
    names = [b"\xff.jpg", b"B.jpg", b"a.jpg", b"a/b.jpg", b"p", "é.jpg".encode()]
    entries = listed(spark, [(b"", name) for name in names], p="not a regular file: a pipe", a="truncated: it ends")
    found = entries.transform(label_by_line, lines=lines, name="truth.txt")
    assert found.columns == entries.columns
    assert {bytes(row.path): (row.or_label, row.reason) for row in found.collect()} == {
        b"B.jpg": ("490", None),
        b"a.jpg": ("361", "truncated: it ends"),
        b"a/b.jpg": ("7", "truncated: it ends"),
        b"p": (None, "not a regular file: a pipe"),
        "é.jpg".encode(): ("-1", None),
        b"\xff.jpg": ("5", None),
    }
    check_lines(entries, lines=lines, name="truth.txt")
    more = entries.unionByName(listed(spark, [(b"", b"README")]))
    with pytest.raises(SourceError) as caught:
        check_lines(more, lines=lines, name="truth.txt")
    assert "Found: 5 lines and 6 files." in str(caught.value)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"1\n2\ncat\n", "'cat' on line 3"),
        (b"1\n\n\n2\n", "line 2 is blank, and more follows"),
        (b"1\n1_0\n", "'1_0' on line 2"),
        (b"1\n1.5\n", "'1.5' on line 2"),
        (b"\xff", r"'\\xff' on line 1"),
        ("٣\n".encode(), "'٣' on line 1"),
        (b"9" * 5000, f"'{'9' * 100}' on line 1"),
    ],
)
def test_label_lines_that_are_not_integers_are_refused(
    spark: SparkSession, tmp_path: Path, data: bytes, found: str
) -> None:
    path = tmp_path / "truth.txt"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        read_label_lines(spark, str(path))
    assert str(caught.value).endswith(f" {path}. Found: {found}.")
