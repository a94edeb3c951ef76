"""What labels mean: the same value is the same class, number or refusal in every source."""

import csv
import io
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.errors import SourceError
from etl.sources import webdataset
from etl.sources.labels import files as label_files
from etl.sources.labels.values import (
    LabelError,
    LabelMeaning,
    class_label_names,
    class_numbers,
    is_number,
    label_text,
    label_texts,
)
from etl.sources.parquet_rows import Columns, read_groups
from etl.sources.plan import SourcePlan
from tests.support.archives import tar_of

NO_LABEL = "no label"


def of_parquet(folder: Path, values: list[Any]) -> list[str | None]:
    """The label texts of a table of bytes."""
    table = pa.table({"image": [b"x"] * len(values), "label": values})
    pq.write_table(table, folder / "t.parquet")
    group = pa.record_batch([[b"t.parquet"], [0], [0], [len(values)], [1]],
                            names=["file", "number", "first", "rows", "size"])  # fmt: skip
    columns = Columns(data="image", path=None, label="label")
    read = read_groups([group], folder=str(folder), columns=columns, dataset="d", or_split=b"", with_data=False)
    return [label for batch in read for label in batch.column("or_label").to_pylist()]


def of_label_file(folder: Path, name: str, data: bytes) -> list[str | None]:
    (folder / name).write_bytes(data)
    batches = label_files._label_batches([str(folder / name)], wanted=["path", "label"], order=())
    return [label for batch in batches for label in batch.column("label").to_pylist()]


def of_parquet_label_file(folder: Path, values: list[Any]) -> list[str | None]:
    out = io.BytesIO()
    pq.write_table(pa.table({"path": [str(place) for place in range(len(values))], "label": values}), out)
    return of_label_file(folder, "l.parquet", out.getvalue())


def of_text(delimiter: str, name: str, start: bytes = b"") -> Callable[[Path, list[Any]], list[str | None]]:
    """A label file as Python writes it."""

    def read(folder: Path, values: list[Any]) -> list[str | None]:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter).writerows([("path", "label"), *enumerate(values)])
        return of_label_file(folder, name, start + out.getvalue().encode())

    return read


def of_shard(folder: Path, members: Collection[tuple[str, bytes]]) -> list[str | None]:
    (folder / "s.tar").write_bytes(tar_of(*members))
    plan = SourcePlan(address="s3://b/*.tar")
    found = webdataset._list_batches([os.fsencode(folder / "s.tar")], plan=plan, dataset="d")
    return [row["or_label"] for batch in found for row in batch.to_pylist() if row["id"]]


def of_cls(folder: Path, values: list[Any], start: bytes = b"") -> list[str | None]:
    bodies = [b"" if value is None else start + str(value).encode() for value in values]
    return of_shard(
        folder, [one for at, body in enumerate(bodies) for one in ((f"{at}.jpg", b""), (f"{at}.cls", body))]
    )


def of_cls_with_a_mark(folder: Path, values: list[Any]) -> list[str | None]:
    return of_cls(folder, values, start=b"\xef\xbb\xbf")


def of_json(folder: Path, values: list[Any]) -> list[str | None]:
    bodies = [json.dumps({"label": value}).encode() for value in values]
    return of_shard(
        folder, [one for at, body in enumerate(bodies) for one in ((f"{at}.jpg", b""), (f"{at}.json", body))]
    )


SOURCES = {
    "parquet": of_parquet,
    "label file, Parquet": of_parquet_label_file,
    "label file, CSV": of_text(",", "l.csv"),
    "label file, CSV with a byte order mark": of_text(",", "l.csv", b"\xef\xbb\xbf"),
    "label file, TSV": of_text("\t", "l.tsv"),
    "cls": of_cls,
    "cls with a byte order mark": of_cls_with_a_mark,
    "json": of_json,
}


def meant(texts: list[str | None], *, kind: str = "webdataset", **options: Any) -> list[str | int | None]:
    """What images with these label texts get: a number, a name, `NO_LABEL`, or None if they are left out."""
    plan = SourcePlan(**{"address": "x", "layout": kind, **options})
    meaning = LabelMeaning.of({text for text in texts if text is not None}, plan=plan)
    numbers = class_numbers(meaning.names, plan=plan)
    found: list[str | int | None] = []
    for text in texts:
        name = None if text is None else meaning.classes.get(text)
        number = name if numbers is None or name is None else numbers[name]
        found.append(None if text in meaning.left_out else NO_LABEL if number is None else number)
    return found


TOO_LARGE = [2**63 + 5, 0]


MEANINGS: list[tuple[list[Any], list[str | int | None]]] = [
    ([0, 1, 10, 2], [0, 1, 10, 2]),
    ([2.0, 10.0, 0.0], [2, 10, 0]),
    ([2.0, None, float("nan")], [2, NO_LABEL, NO_LABEL]),
    ([" 2", "02", "+2", "2.0", "2.", "\ufeff2 ", "2\t"], [2] * 7),
    (["2", "", "  ", "nan"], [2, NO_LABEL, NO_LABEL, NO_LABEL]),
    ([True, False], ["True", "False"]),
    (["cat ", " dog", "nan"], ["cat", "dog", "nan"]),
    (["1", "cat", "-1"], ["1", "cat", "-1"]),
    ([2**31 - 1, 0], [2**31 - 1, 0]),
]


REFUSED: list[tuple[list[Any], str]] = [
    ([0, -1], "'-1'"),
    (["0", "-1.0"], "'-1.0'"),
    ([0.0, 0.5], "'0.5'"),
    ([0, 2**31], "'2147483648'"),
    (TOO_LARGE, "'9223372036854775813'"),
    ([1.0, float("inf")], "'inf(inity)?'"),
    ([1.0, 1e22], r"'(10{22}|1e\+22)'"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_label_means_the_same_in_every_source(tmp_path: Path, source: str) -> None:
    for values, wanted in MEANINGS:
        assert meant(SOURCES[source](tmp_path, values)) == wanted
    for values, found in REFUSED:
        column = pa.array(values, pa.uint64()) if values is TOO_LARGE and "arquet" in source else values
        texts = SOURCES[source](tmp_path, column)
        with pytest.raises(SourceError, match=rf"numbers from 0 to 2147483647, because all .* Found: {found}\. "):
            meant(texts)


def test_numbers_are_names_on_request_and_folders_are_numbers_only_on_request(tmp_path: Path) -> None:
    texts: list[str | None] = ["02", "10", "-1", " 2"]
    assert meant(texts, class_names="name") == ["02", "10", "-1", "2"]
    assert meant(["02", "10", " 2"], kind="tree", address=os.curdir) == ["02", "10", " 2"]
    found = meant(["7", "007", "0", "2147483647", " 3", "0" * 5000 + "1", "2.0"], class_names="number")
    assert found == [7, 7, 0, 2147483647, 3, 1, 2]
    for name in ("2147483648", "-1", "1.5", "\u0663", "1_0", "9" * 5000, "cat", "1e3", "True"):
        assert not is_number(name)
        with pytest.raises(
            SourceError, match=r"Wanted class names that are numbers .* for --class-names number\. Found: "
        ):
            meant(["1", name], class_names="number")
    with pytest.raises(SourceError, match=r"Found: 'a', 'b', 'c', 'd', 'e', \.\.\.\. Set --class-names name"):
        meant(["g", "f", "e", "d", "c", "b", "1", "a"], class_names="number")


def test_images_whose_label_means_none_are_left_out_on_request() -> None:
    for value in ("-1", "-1.0", " -01 "):
        assert meant(["0", "-1", "-1.0", "2"], no_label=value) == [0, None, None, 2]
    assert meant(["cat", "unknown", " unknown"], no_label="unknown") == ["cat", None, None]
    with pytest.raises(SourceError, match=r"Found: '-1', '-2'\. If -1 means no label, .* with --no-label -1\. Set"):
        meant(["0", "-1", "-2"])


def test_names_of_which_some_are_numbers_are_reported() -> None:
    plan = SourcePlan(address="x", layout="webdataset")
    (remark,) = LabelMeaning.of(["1", "2", "None"], plan=plan).remarks
    assert remark.startswith("2 of 3 class names are numbers and others are not ('None'): all get numbers by name")
    assert not LabelMeaning.of(["1", "2", "3"], plan=plan).remarks
    assert not LabelMeaning.of(["cat", "dog"], plan=plan).remarks


def test_a_class_keeps_the_spelling_that_an_earlier_version_gave_it() -> None:
    texts = {label_text(value) for value in (True, False, 2.0, "cat", "new", "2.5")}
    assert None not in texts
    plan = SourcePlan(address="x", layout="webdataset")

    def names(*known: str) -> frozenset[str]:
        return LabelMeaning.of({text for text in texts if text}, plan=plan, known=known).names

    now = {"True", "False", "2", "cat", "new", "2.5"}
    assert names() == names("dog", "TRUE", "02", "2.50") == now
    assert names("true", "false", "2.0", " cat") == {"true", "false", "2.0", " cat", "new", "2.5"}
    assert names("true", "True", "2", "2.0", " cat", "cat") == now  # the dataset has both
    assert LabelMeaning.of({"true", "True"}, plan=plan, known=["true"]).names == {"true", "True"}  # so has the source


def _schema(names: Any, *, kind: str = "int64", type: str = "ClassLabel") -> Any:
    features = {"info": {"features": {"label": {"names": names, "_type": type}}}}
    return pa.schema([("label", pa.type_for_alias(kind))], {"huggingface": json.dumps(features)})


def test_class_names_in_the_schema_of_a_parquet_file_are_used() -> None:
    schema = _schema(["cat", "ant", " bee"])
    assert class_label_names(schema, "label") == ("cat", "ant", "bee")
    others = (_schema(["cat"], type="Value"), _schema(["cat"], kind="string"), schema.remove_metadata(), _schema([]))
    assert [class_label_names(one, "label") for one in others] == [()] * 4
    assert class_label_names(schema.with_metadata({"huggingface": "{"}), "label") == ()
    for names in (["a", "a"], ["a", " a"], ["a", ""], ["a", 1], "ab"):
        with pytest.raises(SourceError, match=r"Wanted different names .* Set --class-names number"):
            class_label_names(_schema(names), "label")


def test_numbers_beyond_the_names_of_a_schema_are_refused() -> None:
    names = ("cat", "ant")
    texts = label_texts(pa.array([0, 1, -1, None]), names=names)
    assert texts.to_pylist() == ["cat", "ant", "-1", None]
    with pytest.raises(LabelError, match="2, and 2 class names in the schema"):
        label_texts(pa.array([0, 2]), names=names)
    plan = SourcePlan(address="x", layout="webdataset")
    with pytest.raises(SourceError, match=r"Wanted labels from 0 to 1, .* of .*/x\. Found: '-1'\. .* --no-label -1"):
        LabelMeaning.of({"cat", "-1"}, plan=plan, order=names)
    left_out = SourcePlan(address="x", layout="webdataset", no_label="-1")
    assert LabelMeaning.of({"cat", "-1"}, plan=left_out, order=names).left_out == {"-1"}


def test_files_with_other_class_names_than_the_first_are_refused(tmp_path: Path) -> None:
    schema = _schema(["dog", "cat"]).insert(0, pa.field("image", pa.binary()))
    pq.write_table(pa.table({"image": [b"x"], "label": [0]}, schema=schema), tmp_path / "t.parquet")
    group = pa.record_batch([[b"t.parquet"], [0], [0], [1], [1]], names=["file", "number", "first", "rows", "size"])
    for order in (("dog", "cat"), ("cat", "dog")):
        columns = Columns(data="image", path=None, label="label", order=order)
        read = read_groups([group], folder=str(tmp_path), columns=columns, dataset="d", or_split=b"", with_data=False)
        if order[0] == "dog":
            assert [label for batch in read for label in batch.column("or_label").to_pylist()] == ["dog"]
        else:
            with pytest.raises(SourceError, match=r"t\.parquet, as in the first file\. Found: 'dog', 'cat'\. Set --cl"):
                list(read)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"caf\xe9", r"b'caf\\xe9', which is not UTF-8"),
        ("\ud800", r"'\\ud800', which is not Unicode"),
        ("cat\n4.jpg,cat", r"'cat\\n4\.jpg,cat', which has several lines"),
        ([1], "a list"),
    ],
)
def test_values_that_are_no_labels_are_refused(value: Any, found: str) -> None:
    with pytest.raises(LabelError, match=found):
        label_text(value)
