"""Reading split folders, complete and damaged."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats import DamagedError, NotASplitError, StorageError, open_split
from formats.hashing import xxhash64
from formats.stores.storage import Storage
from schemas import FormatVersionError, SchemaError
from tests.support.split_folders import image_ids, packed, write_split_folder

IDS, LABELS = image_ids(50), [number % 4 for number in range(50)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_split_folder(tmp_path / "split", [(IDS[:40], LABELS[:40]), (IDS[40:], LABELS[40:]), ([], [])])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("files", [1, 3, 40])
def test_rows_are_ordered_by_position_across_any_files(tmp_path: Path, files: int) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS)], files=files)
    rows = open_split(folder).rows(0, cache=tmp_path / "cache")
    assert np.array_equal(rows.ids, packed(IDS))
    assert rows.labels.tolist() == LABELS
    assert (rows.ids.dtype, rows.labels.dtype) == (np.uint8, np.int32)
    assert len(rows) == 50


def test_each_split_has_its_own_rows(folder: Path, cache: Path) -> None:
    opened = open_split(folder)
    assert np.array_equal(opened.rows(1, cache=cache).ids, packed(IDS[40:]))
    assert len(opened.rows(2, cache=cache)) == 0
    assert opened.part(0).counts == {0: 10, 1: 10, 2: 10, 3: 10}


@pytest.mark.parametrize("has_position", [True, False])
def test_an_image_is_found_without_opening_the_split(tmp_path: Path, has_position: bool) -> None:
    splits = [(IDS[:40], LABELS[:40]), (IDS[40:], LABELS[40:])]
    folder = open_split(write_split_folder(tmp_path / "split", splits, files=3, has_position=has_position))
    assert folder.find(0, IDS[17].bytes) == (LABELS[17], 17 if has_position else None)
    assert folder.find(1, IDS[41].bytes) == (LABELS[41], 1 if has_position else None)
    assert folder.find(1, IDS[17].bytes) is None


@pytest.mark.parametrize("has_position", [True, False])
def test_checksums_are_those_of_the_rows_whatever_their_files(tmp_path: Path, has_position: bool) -> None:
    sums = [number - 25 for number in range(50)]  # one is 0: unknown
    made = write_split_folder(
        tmp_path / "split", [(IDS, LABELS), ([], [])], files=3, has_position=has_position, checksums=[sums, []]
    )
    split, cache = open_split(made), tmp_path / "cache"
    rows, found = split.rows(0, cache=cache), split.checksums(0, cache=cache)
    wanted = dict(zip([one.bytes for one in IDS], sums, strict=True))
    assert found.tolist() == [wanted[one.tobytes()] for one in rows.ids]
    assert found.dtype == np.int64
    assert not found.flags.writeable
    assert (split.part(0).without_checksum, len(split.checksums(1, cache=cache))) == (1, 0)


def test_a_split_of_an_earlier_version_has_no_checksums(folder: Path, cache: Path) -> None:
    assert open_split(folder).checksums(0, cache=cache) is None


def test_checksums_that_were_changed_are_not_believed(tmp_path: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS)], files=1, checksums=[range(1, 51)])
    (file,) = folder.glob("split=0/*.parquet")
    table = pq.read_table(file)
    column = table.schema.get_field_index("xxhash64")
    pq.write_table(table.set_column(column, "xxhash64", pa.array(np.arange(50, dtype=np.int64))), file)
    split = open_split(folder)
    split.rows(0, cache=tmp_path / "cache")  # these are as they were
    with pytest.raises(DamagedError, match=r"Found: 50 rows with other checksums\. .*Make the split again"):
        split.checksums(0, cache=tmp_path / "cache")


def test_rows_cannot_be_changed(folder: Path, cache: Path) -> None:
    rows = open_split(folder).rows(0, cache=cache)
    with pytest.raises(ValueError, match="read-only"):
        rows.labels[0] = 1


@pytest.mark.parametrize("index", [-1, 3])
def test_a_missing_split_is_named(folder: Path, index: int) -> None:
    with pytest.raises(IndexError, match=f"from 0 to 2 of .*Found: {index}"):
        open_split(folder).rows(index)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_a_folder_without_a_split_is_named(tmp_path: Path, make) -> None:
    make(tmp_path / "nothing")
    with pytest.raises(NotASplitError, match=r"nothing\. Found: no _manifest\.json"):
        open_split(tmp_path / "nothing")


def test_a_newer_format_is_refused(folder: Path) -> None:
    text = (folder / "_manifest.json").read_text()
    (folder / "_manifest.json").write_text(json.dumps(json.loads(text) | {"format": 2}))
    with pytest.raises(FormatVersionError, match=r"Found: format 2\. .*Upgrade"):
        open_split(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": "one"}', '{"format": 0}', "\xff\xfe"])
def test_a_damaged_manifest_is_named(folder: Path, text: str) -> None:
    (folder / "_manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SchemaError, match="Found: "):
        open_split(folder)


def first_file(folder: Path) -> Path:
    return min((folder / "split=0").iterdir())


def first_rows(folder: Path) -> pa.Table:
    """The rows of that file alone. Some versions of `read_table` add a column from its folder's name."""
    return pq.ParquetFile(first_file(folder)).read()


def change(folder: Path, column: str, values: list[object]) -> None:
    table = first_rows(folder)
    values += table.column(column).to_pylist()[len(values) :]
    place = table.schema.get_field_index(column)
    pq.write_table(
        table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type)),
        first_file(folder),
    )


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda folder: first_file(folder).unlink(), "no file split=0/part-00000.parquet"),
        (lambda folder: first_file(folder).write_bytes(b"PAR1 and then nothing"), "part-00000.parquet cannot be read"),
        (lambda folder: first_file(folder).write_bytes(b""), "part-00000.parquet cannot be read"),
        (lambda folder: change(folder, "label", [3, 3, 3, 3]), "40 rows of fingerprint"),
        (lambda folder: change(folder, "id", [b"\0" * 16]), "40 rows of fingerprint"),
        (lambda folder: change(folder, "id", [b"\0" * 15, b"\0" * 17]), "part-00000.parquet cannot be read"),
        (lambda folder: change(folder, "position", [40]), r"position outside 0\.\.39"),
        (lambda folder: change(folder, "position", [-1]), r"position outside 0\.\.39"),
        (
            lambda folder: pq.write_table(first_rows(folder).slice(1), first_file(folder)),
            "39 rows of",
        ),
        (
            lambda folder: pq.write_table(first_rows(folder).drop_columns("label"), first_file(folder)),
            "part-00000.parquet cannot be read",
        ),
        (
            lambda folder: pq.write_table(
                pq.ParquetFile(first_file(folder))
                .read()
                .rename_columns(["id", "label", "position"])
                .cast(pa.schema([("id", pa.binary()), ("label", pa.int64()), ("position", pa.int64())])),
                first_file(folder),
            ),
            None,  # another width, the same numbers: not damaged
        ),
    ],
)
def test_changed_files_are_detected(folder: Path, cache: Path, damage, found: str | None) -> None:
    damage(folder)
    opened = open_split(folder)
    if found is None:
        assert opened.rows(0, cache=cache).labels.tolist() == LABELS[:40]
        return
    with pytest.raises(DamagedError, match=f"Wanted 40 rows .*Found: .*{found}"):
        opened.rows(0, cache=cache)
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_rows_without_positions_are_ordered_by_seeded_hash_across_any_files(tmp_path: Path) -> None:
    hashes = xxhash64([np.full(50, 7, dtype=np.int64), packed(IDS)])
    wanted = np.argsort(hashes)
    for files in (1, 3, 40):
        folder = write_split_folder(tmp_path / str(files), [(IDS, LABELS)], files=files, has_position=False)
        rows = open_split(folder).rows(0, cache=tmp_path / f"cache-{files}")
        assert np.array_equal(rows.ids, packed(IDS)[wanted])
        assert np.array_equal(rows.labels, np.array(LABELS)[wanted])


def test_changed_rows_without_positions_are_detected(tmp_path: Path, cache: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS[:40], LABELS[:40])], has_position=False)
    change(folder, "label", [3, 3, 3, 3])
    with pytest.raises(DamagedError, match=r"Wanted 40 rows .*Found: 40 rows of fingerprint"):
        open_split(folder).rows(0, cache=cache)
    pq.write_table(first_rows(folder).slice(1), first_file(folder))
    with pytest.raises(DamagedError, match=r"Wanted 40 rows .*Found: 39 rows"):
        open_split(folder).rows(0, cache=cache)
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_the_first_of_several_damaged_files_is_named(tmp_path: Path, cache: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS)], files=20)
    for file in sorted((folder / "split=0").iterdir())[4:]:
        file.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"part-00004\.parquet cannot be read"):
        open_split(folder).rows(0, cache=cache)


def test_a_storage_error_is_not_reported_as_damage(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise StorageError("no answer")

    opened = open_split(folder)
    monkeypatch.setattr(Storage, "open", gone)
    with pytest.raises(StorageError, match="no answer"):
        opened.rows(0, cache=cache)


def test_a_split_folder_can_be_on_any_storage(folder: Path, cache: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/bucket/split", recursive=True)
    try:
        opened = open_split("memory://bucket/split")
        assert opened.address == "memory://bucket/split"
        assert np.array_equal(opened.rows(0, cache=cache).ids, packed(IDS[:40]))
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("name", ["_manifest.json", "manifest.json"])
def test_the_folder_of_a_manifest_is_suggested(tmp_path: Path, name: str) -> None:
    folder = write_split_folder(tmp_path / "s", [(image_ids(2), [0, 1])])
    with pytest.raises(NotASplitError) as error:
        open_split(folder / name)
    assert str(error.value).endswith(f"Found: {folder / name}. Did you mean {folder}?")
