"""The target of a split: what may be overwritten, what is refused before reading, and wrong counts."""

import pickle
import shutil
from pathlib import Path

import pytest

from etl.errors import EtlError, OutputExistsError
from etl.splits.metadata import Metadata, cache_folder
from etl.splits.output import SplitOutput, check_parts, parts
from etl.splits.plan import SplitPlan
from formats import NotASplitError, open_split
from schemas import Columns, SplitFile, SplitPart, TableName
from tests.support.parquet_readers import READERS
from tests.support.split_dictionaries import theirs
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.stored import unpack

PLAN = SplitPlan(data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"), seed=7)
METADATA = Metadata(
    rows=None,  # type: ignore[arg-type]
    data_table=TableName("ks", "data"),
    metadata_table=TableName("ks", "metadata"),
    columns=Columns(),
    label_type="int",
    class_names={},
)


def test_a_folder_with_other_things_in_it_is_refused_even_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for kind in (SplitOutput, cache_folder):
        with pytest.raises(OutputExistsError, match=r"thesis\.tex"):
            kind(str(tmp_path), overwrite=True)


@pytest.mark.parametrize(
    "name", ["split=train/precious.parquet", "split=notes.txt", "split=0/notes.txt", "_manifest.json", "manifest.json"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_files_that_only_resemble_a_split_are_never_replaced(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"name": "somebody else\'s"}')
    with pytest.raises(OutputExistsError, match="Use another folder"):
        SplitOutput(str(tmp_path), overwrite=overwrite)
    assert (tmp_path / name).read_text() == '{"name": "somebody else\'s"}'


def test_an_existing_split_is_accepted_only_with_overwrite(tmp_path: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(image_ids(3), [0, 1, 2])])
    with pytest.raises(OutputExistsError, match=r"a split that exists already\. Set --overwrite"):
        SplitOutput(str(folder), overwrite=False)
    with SplitOutput(str(folder), overwrite=True):
        assert len(list(folder.glob("_attempt-*"))) == 1
    assert list(folder.glob("_attempt-*")) == []
    assert (folder / "_manifest.json").is_file()


def publish(out: Path, *, of: Path) -> None:
    """Put the splits of one folder into another, as a run does after it has written its files."""
    splits = open_split(of).manifest.splits
    with SplitOutput(str(out), overwrite=True) as output:
        rows = Path(output.aside("rows").removeprefix("file://"))
        for part in splits:
            shutil.copytree(of / f"split={part.index}", rows / f"split={part.index}")
        output.publish(splits, plan=PLAN, metadata=METADATA, warnings=[], page="<html></html>")


@pytest.mark.parametrize("library", READERS)
def test_other_libraries_read_a_split_folder_as_it_is(tmp_path: Path, library: str) -> None:
    parts = [(image_ids(5), [0, 1, 2, 0, 1]), (image_ids(3, first=5), [2, 1, 0])]
    publish(tmp_path / "out", of=write_split_folder(tmp_path / "written", parts))
    assert all(path.name.startswith("_") for path in (tmp_path / "out").iterdir() if path.is_file())
    assert READERS[library](tmp_path / "out") == [
        (split, position, one.bytes, label)
        for split, (ids, labels) in enumerate(parts)
        for position, (one, label) in enumerate(zip(ids, labels, strict=True))
    ]


def test_a_split_that_an_earlier_version_wrote_is_replaced_with_its_names(tmp_path: Path) -> None:
    out = unpack("split_folder", tmp_path / "out")
    (out / "report.html").touch()
    new = write_split_folder(tmp_path / "new", [(image_ids(5), [0, 1, 2, 0, 1])])
    with pytest.raises(OutputExistsError, match=r"a split that exists already\. Set --overwrite"):
        SplitOutput(str(out), overwrite=False)
    publish(out, of=new)
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "_croissant.json",
        "_manifest.json",
        "_report.html",
    ]
    named = open_split(out).manifest.splits[0].files
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet")) == sorted(file.path for file in named)


def test_what_a_killed_writer_leaves_of_a_manifest_is_replaced(tmp_path: Path) -> None:
    out = write_split_folder(tmp_path / "out", [(image_ids(3), [0, 1, 2])])
    for name in ("_manifest.json", "manifest.json", "_report.html"):
        (out / f".{name}.0a1b2c3d4e5f6789").touch()
    with SplitOutput(str(out), overwrite=True):
        pass


def test_a_half_written_split_is_accepted_only_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "_attempt-fedcba987654").mkdir()
    with pytest.raises(OutputExistsError, match=r"another run is writing\. If none is writing, set --ov"):
        SplitOutput(str(tmp_path), overwrite=False)
    (tmp_path / "split=0").mkdir()
    (tmp_path / "split=0" / "part-00000-killed.zstd.parquet").touch()
    with pytest.raises(OutputExistsError, match=r"another run is writing\. If none is writing, set --ov"):
        SplitOutput(str(tmp_path), overwrite=False)


def test_an_unwritable_output_folder_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputExistsError, match="Found: a file"):
        SplitOutput(str(tmp_path / "file"), overwrite=True)
    for kind in (SplitOutput, cache_folder):
        with pytest.raises(OutputExistsError, match=r"a folder for the .*file/below\. Found: a file"):
            kind(str(tmp_path / "file" / "below"), overwrite=False)
    with pytest.raises(OutputExistsError, match="Found: a file"):
        SplitOutput(str(tmp_path / "file" / "below.pckl"), overwrite=False)
    with pytest.raises(OutputExistsError, match="a writable folder"):
        SplitOutput("/proc/nope/split", overwrite=True)


def test_a_dictionary_replaces_only_a_dictionary_and_only_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "notes.pckl").write_bytes(b"no dictionary")
    (tmp_path / "split.pckl").write_bytes(pickle.dumps(theirs()))
    for name in ("notes.pckl", "split.pckl"):
        with pytest.raises(OutputExistsError, match=r"Found: one that exists already\. Set --overwrite"):
            SplitOutput(str(tmp_path / name), overwrite=False)
    with pytest.raises(NotASplitError):
        SplitOutput(str(tmp_path / "notes.pckl"), overwrite=True)
    with SplitOutput(str(tmp_path / "split.pckl"), overwrite=True):
        assert len(list(tmp_path.glob(".split.pckl.*"))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.pckl", "split.pckl"]


def test_a_failed_attempt_leaves_no_new_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), SplitOutput(str(tmp_path / "new"), overwrite=False):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()


def test_a_newer_split_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text('{"format": 99}')
    with pytest.raises(OutputExistsError, match=r"Found: format 99\..* Or use another folder"):
        SplitOutput(str(tmp_path), overwrite=True)


def test_quotas_that_differ_from_the_files_are_named() -> None:
    part = SplitPart(index=0, rows=3, counts={0: 3}, fingerprint="", files=())
    with pytest.raises(EtlError, match="2 other counts, class 0 in split 0: wanted 4, found 3; split 0"):
        check_parts([part], sizes=[4], counts={0: (4,)})


def summary(*, rows: int, last: int, total: int) -> dict[str, int]:
    sums = dict.fromkeys(("high0", "low0", "high1", "low1"), 0)
    return {"split": 0, "label": 0, "rows": rows, "max_position": last, "sum_position": total, **sums}


@pytest.mark.parametrize(("last", "total"), [(3, 6), (2, 4)])
def test_positions_that_are_not_dense_are_refused(last: int, total: int) -> None:
    files = {0: [SplitFile("split=0/part.parquet", 3)]}
    with pytest.raises(EtlError, match=rf"Wanted positions 0 to 2 in split 0\. Found: others, up to {last}"):
        parts([summary(rows=3, last=last, total=total)], files=files, counts={}, splits=1, plan=PLAN, label_type="int")


def test_files_whose_rows_differ_from_those_read_are_refused() -> None:
    files = {0: [SplitFile("split=0/part.parquet", 4)]}
    with pytest.raises(EtlError, match=r"Wanted 3 rows in the files of split 0\. Found: 4"):
        parts([summary(rows=3, last=2, total=3)], files=files, counts={}, splits=1, plan=PLAN, label_type="int")


def test_an_empty_split_has_an_entry_too() -> None:
    files = {0: [SplitFile("split=0/part.parquet", 3)]}
    found = parts([summary(rows=3, last=2, total=3)], files=files, counts={}, splits=2, plan=PLAN, label_type="int")
    assert [(part.rows, dict(part.counts)) for part in found] == [(3, {0: 3}), (0, {})]
