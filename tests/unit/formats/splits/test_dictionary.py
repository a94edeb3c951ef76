"""Split dictionaries: we write what others read, read what others wrote, and run nothing in them."""

import contextlib
import copyreg
import functools
import importlib
import io
import os
import pickle
import pickletools
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from formats import DamagedError, FormatsError, NotASplitError, OpenSplit, SplitRows, is_dictionary, open_split
from formats.splits import pickles
from formats.splits.dictionary import read_dictionary, write_dictionary
from formats.stores.storage import Storage
from schemas import Columns, IdentifierError, SchemaError
from tests.support.split_dictionaries import IDS, theirs
from tests.support.split_folders import Rows, packed, write_split_folder

LABELS = [number % 7 for number in range(60)]
SPLITS: list[Rows] = [(IDS[:40], LABELS[:40]), (IDS[40:], LABELS[40:]), ([], [])]
Save = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Save:
    def save(content: object, protocol: int = 4) -> Path:
        path = tmp_path / "split.pckl"
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
        return path

    return save


def written(folder: Path, splits: Sequence[Rows] = SPLITS, **options: Any) -> Path:
    """Write a dictionary of the splits of a folder."""
    opened = open_split(write_split_folder(folder / "split", splits, **options))
    rows = [opened.rows(index, cache=folder / "cache") for index in range(len(splits))]
    write_dictionary(Storage(folder), "split.pckl", manifest=opened.manifest, splits=rows)
    return folder / "split.pckl"


@pytest.mark.parametrize(("address", "expected"), [
    ("a.pckl", True), ("s3://bucket/a/b.PKL", True), (Path("x/Split.Pckl"), True), ("a.pckl/", True),
    ("splits/pckl", False), ("a.pkl.parquet", False), ("", False),
])  # fmt: skip
def test_a_dictionary_is_recognised_by_its_extension(address: str | Path, expected: bool) -> None:
    assert is_dictionary(address) is expected


def rows_of(found: OpenSplit) -> list[SplitRows]:
    return [found.rows(part.index) for part in found.manifest.splits]


def test_a_dictionary_is_read_back_in_the_same_order(tmp_path: Path) -> None:
    columns = Columns(id="patch_id", label="Klasse", data="Bild")
    found = read_dictionary(written(tmp_path, columns=columns, data_table="ks.data"))
    manifest = found.manifest
    assert (manifest.data_table, manifest.metadata_table, manifest.columns) == ("ks.data", "test.metadata", columns)
    assert (manifest.label_type, manifest.num_classes, found.address) == ("int", 7, str(tmp_path / "split.pckl"))
    for rows, (ids, labels) in zip(rows_of(found), SPLITS, strict=True):
        assert np.array_equal(rows.ids, packed(ids))
        assert rows.labels is not None
        assert rows.labels.tolist() == labels
        assert (rows.ids.shape, rows.labels.shape) == ((len(ids), 16), (len(ids),))
        assert rows.ids.dtype == np.uint8
        assert rows.labels.dtype == np.int32
        assert not rows.ids.flags.writeable
        assert not rows.labels.flags.writeable


def test_a_dictionary_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    before = read_dictionary(written(tmp_path))
    (rows,) = rows_of(read_dictionary(written(tmp_path, [(IDS[30:], LABELS[:30])])))
    assert rows.labels is not None
    assert np.array_equal(rows.ids, packed(IDS[30:]))
    assert rows.labels.tolist() == LABELS[:30]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "split", "split.pckl"]
    assert np.array_equal(before.rows(0).ids, packed(IDS[:40]))  # processes that have opened it keep reading it


def test_a_dictionary_can_be_on_any_storage(tmp_path: Path) -> None:
    opened = open_split(write_split_folder(tmp_path, SPLITS))
    rows = [opened.rows(0, cache=tmp_path / "cache")]
    write_dictionary(Storage("memory://splits/deep"), "split.pkl", manifest=opened.manifest, splits=rows)
    found = read_dictionary("memory://splits/deep/split.pkl")
    assert found.address == "memory://splits/deep/split.pkl"
    assert np.array_equal(found.rows(0).ids, packed(IDS[:40]))
    with pytest.raises(NotASplitError, match=r"at memory://splits/gone\.pkl\. Found: no such file"):
        read_dictionary("memory://splits/gone.pkl")


def test_plain_pickle_reads_arrays_and_uuids(tmp_path: Path) -> None:
    path = written(tmp_path)
    for load in (pickle.loads, lambda data: pickle._Unpickler(io.BytesIO(data)).load()):
        found = load(path.read_bytes())
        assert list(found) == [*theirs(), "labels"]
        assert found["row_keys"].tolist() == IDS
        assert found["row_keys"].dtype == object
        assert all(type(key) is uuid.UUID and key.is_safe is uuid.SafeUUID.unknown for key in found["row_keys"])
        assert [part.tolist() for part in found["split"]] == [list(range(40)), list(range(40, 60)), []]
        assert {part.dtype for part in found["split"]} == {np.dtype(np.int64)}
        assert (found["labels"].dtype, found["labels"].tolist()) == (np.int32, LABELS)
        assert (found["medadata_id_col"], found["metadata_label_col"], found["num_classes"]) == ("id", "label", 7)
        np.random.default_rng(0).shuffle(found["split"][0])  # in place, as training scripts may do


def test_written_pickles_refer_to_public_classes_only(tmp_path: Path) -> None:
    opcodes = list(pickletools.genops(written(tmp_path).read_bytes()))
    assert {argument for opcode, argument, _ in opcodes if opcode.name in ("GLOBAL", "STACK_GLOBAL")} == {
        "numpy ndarray", "numpy dtype", "uuid UUID",
    }  # fmt: skip
    assert max(opcode.proto for opcode, _, _ in opcodes) == 4


@pytest.mark.parametrize("number", [0, 1, 255, 1 << 64, (1 << 127) - 1, 1 << 127, (1 << 128) - 1])
def test_any_uuid_survives(tmp_path: Path, number: int) -> None:
    one = uuid.UUID(int=number)
    path = written(tmp_path, [([one], [3])])
    assert pickle.loads(path.read_bytes())["row_keys"].tolist() == [one]
    for content in (path.read_bytes(), pickle.dumps(theirs(row_keys=np.array([one]), split=[np.array([0])]))):
        path.write_bytes(content)
        assert read_dictionary(path).rows(0).ids.tobytes() == one.bytes


@settings(max_examples=50, deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 12), unique=True, max_size=10), max_size=5))
def test_shared_images_are_stored_once_and_splits_keep_their_rows(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("split")
    (folder / "split").mkdir()
    ids, labels = packed(IDS), np.array(LABELS, dtype=np.int32)
    manifest = open_split(write_split_folder(folder / "split", [])).manifest
    rows = [SplitRows(ids[part], labels[part]) for part in parts]
    write_dictionary(Storage(folder), "split.pckl", manifest=manifest, splits=rows)
    plain = pickle.loads((folder / "split.pckl").read_bytes())
    seen = list(dict.fromkeys(place for part in parts for place in part))
    assert plain["row_keys"].tolist() == [IDS[place] for place in seen]
    assert plain["labels"].tolist() == [LABELS[place] for place in seen]
    for found, part in zip(rows_of(read_dictionary(folder / "split.pckl")), parts, strict=True):
        assert np.array_equal(found.ids, ids[part])
        assert found.labels is not None
        assert found.labels.tolist() == [LABELS[place] for place in part]


def test_an_image_with_two_labels_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"one label for each image of .*split\.pckl\. Found: an image with two"):
        written(tmp_path, [([IDS[0]], [1]), ([IDS[0]], [2])])


def test_too_many_images_are_refused_with_advice_to_write_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("formats.splits.dictionary.MAX_ROWS", 60)
    path = written(tmp_path)  # the maximum
    content = path.read_bytes()
    monkeypatch.setattr("formats.splits.dictionary.MAX_ROWS", 59)
    with pytest.raises(FormatsError, match=r"at most 59 images .*Found: 60\. Write a folder instead"):
        written(tmp_path)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.glob("*.pckl*")] == ["split.pckl"]


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", ["<i8", ">i8", "i4", "u2"])
def test_dictionaries_written_by_other_tools_are_read(saved: Save, protocol: int, dtype: str) -> None:
    split = [np.array(part, dtype=dtype) for part in ([5, 3, 59], [0])]
    found = read_dictionary(saved(theirs(split=split, num_classes=np.int64(10)), protocol))
    assert (found.manifest.data_table, found.manifest.num_classes) == ("imagenette.data", 10)
    assert found.manifest.columns == Columns(id="patch_id")
    assert [rows.labels for rows in rows_of(found)] == [None, None]
    assert np.array_equal(found.rows(0).ids, packed([IDS[5], IDS[3], IDS[59]]))
    assert np.array_equal(found.rows(1).ids, packed([IDS[0]]))


def test_dictionaries_of_older_numpy_and_python_versions_are_read(saved: Save) -> None:
    """Arrays of numpy 1, and UUIDs of Python 3.7, with their `is_safe` as an enumeration."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=3)
    safety = uuid.SafeUUID.unknown
    pickler.dispatch_table = {
        uuid.UUID: lambda one: (copyreg.__newobj__, (uuid.UUID,), {"int": one.int, "is_safe": safety}),  # type: ignore[attr-defined]
        uuid.SafeUUID: lambda one: (uuid.SafeUUID, (one.value,)),
    }
    pickler.dump(theirs(num_classes=np.int32(4)))
    assert b"cuuid\nSafeUUID\n" in stream.getvalue()
    old = re.sub(rb"cnumpy\._core\.", rb"cnumpy.core.", stream.getvalue())
    found = read_dictionary(saved(old))
    assert np.array_equal(found.rows(0).ids, packed([IDS[5], IDS[3], IDS[59]]))
    assert found.manifest.num_classes == 4


def test_the_fingerprint_differs_between_splits_orders_and_labels(saved: Save) -> None:
    def fingerprints(*parts: list[int], **more: object) -> list[str]:
        content = theirs(split=[np.array(part) for part in parts], **more)
        return read_dictionary(saved(content)).fingerprints

    assert fingerprints([1, 2, 3]) == fingerprints([1, 2, 3], data_table="other.data")
    labels = np.array(LABELS, dtype=np.int32)
    found = [*fingerprints([1, 2, 3], [1, 2, 3]), *fingerprints([2, 1, 3]), *fingerprints([1, 2, 3], labels=labels)]
    assert len(set(found)) == len(found) == 4
    # The fingerprint depends on ids, not on their places in the file: the same split with row_keys in another order.
    turned = np.array(IDS[::-1], dtype=object)
    assert fingerprints([58, 57, 56], row_keys=turned) == fingerprints([1, 2, 3])


@pytest.mark.parametrize("empty", [np.array([]), np.array([], dtype=np.int64)])
def test_an_empty_split_can_be_written_and_read(saved: Save, empty: NDArray[Any]) -> None:
    (rows,) = rows_of(read_dictionary(saved(theirs(split=[empty], labels=np.array(LABELS, dtype=np.int16)))))
    assert (rows.ids.shape, len(rows)) == ((0, 16), 0)
    assert rows.labels is not None
    assert rows.labels.shape == (0,)
    assert rows.labels.dtype == np.int32


DAMAGED = [
    ({"row_keys": np.array([str(one) for one in IDS], dtype=object)}, "row_keys that are not UUIDs, from row 0 to 59"),
    ({"row_keys": np.array([*IDS[:-1], None], dtype=object)}, "row_keys that are not UUIDs"),
    ({"row_keys": np.arange(60)}, "row_keys that are not an array of UUIDs"),
    ({"row_keys": np.array(IDS, dtype=object).reshape(2, 30)}, "row_keys that are not an array of UUIDs"),
    ({"row_keys": IDS}, "row_keys that are not an array of UUIDs"),
    ({"row_keys": np.array([*IDS, IDS[4], IDS[2]], dtype=object)}, "2 duplicates in row_keys, the first at row 60"),
    ({"split": [np.array([0]), np.array([5, 60])]}, r"places outside 0\.\.59 in split 1"),
    ({"split": [np.array([0, -1])]}, r"places outside 0\.\.59 in split 0"),
    ({"split": [np.array([2**64 - 1], dtype=np.uint64)]}, r"places outside 0\.\.59 in split 0"),
    ({"split": [np.array([0, 3, 0])]}, "duplicate rows in split 0"),
    ({"split": [np.array([0.0, 1.0])]}, "split 0 that is not an array of integers"),
    ({"split": [np.array([True])]}, "split 0 that is not an array of integers"),
    ({"split": [np.array([[0, 1], [2, 3]])]}, "split 0 that is not an array of integers"),
    ({"split": [np.array([0, "1"], dtype=object)]}, "split 0 that is not an array of integers"),
    ({"split": [[0, 1]]}, "split 0 that is not an array of integers"),
    ({"split": np.array([0, 1])}, "split that is not a list of arrays"),
    ({"num_classes": "ten"}, "num_classes that is not a whole number"),
    ({"num_classes": True}, "num_classes that is not a whole number"),
    ({"num_classes": -1}, "num_classes that is not a whole number"),
    ({"data_table": None}, "data_table that is not text"),
    ({"labels": np.arange(59, dtype=np.int32)}, "labels that are not 60 int32"),
    ({"labels": np.arange(60)}, "labels that are not 60 int32"),
    ({"labels": list(range(60))}, "labels that are not 60 int32"),
]


@pytest.mark.parametrize(("changes", "found"), DAMAGED)
def test_inconsistent_parts_are_reported(saved: Save, changes: dict[str, object], found: str) -> None:
    path = saved(theirs(**changes))
    with pytest.raises(DamagedError, match=f"Wanted a split dictionary at {path}. Found: {found}"):
        read_dictionary(path)


def test_a_column_name_invalid_in_cassandra_is_refused(saved: Save) -> None:
    with pytest.raises(IdentifierError, match="a column name"):
        read_dictionary(saved(theirs(data_col='data" FROM x; --')))


@pytest.mark.parametrize("key", [key for key in theirs() if not key.startswith(("medadata", "metadata_label"))])
def test_a_missing_key_is_named(saved: Save, key: str) -> None:
    with pytest.raises(NotASplitError, match=f"Found: a dictionary without {key}"):
        read_dictionary(saved({name: value for name, value in theirs().items() if name != key}))


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.pckl").mkdir()
    monkeypatch.chdir(tmp_path)
    for place in ("gone.pckl", f"{tmp_path}/no/gone.pckl", "folder.pckl", "/gone.pckl"):
        with pytest.raises(NotASplitError, match=r"Wanted a split dictionary at /.*\.pckl\. Found: no such file"):
            read_dictionary(place)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1 is no pickle", b"\x80", b"\x80\x04N.", b"\x80\x04}", b"\x80\x63}.", b"s.", b"e."]
)
def test_files_that_are_not_a_pickled_dictionary_are_refused(saved: Save, content: bytes) -> None:
    with pytest.raises(NotASplitError, match=r"Found: (no pickle, or a truncated|a pickle of something other)"):
        read_dictionary(saved(content))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), protocol=st.sampled_from([3, 4, 5]))
def test_truncated_and_damaged_files_raise_format_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, protocol: int
) -> None:
    whole = pickle.dumps(theirs(), protocol=protocol)
    path = tmp_path_factory.mktemp("split") / "split.pckl"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(NotASplitError):
        read_dictionary(path)
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with contextlib.suppress(FormatsError, SchemaError):
        read_dictionary(path)


class Call:
    """When unpickled, it calls a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, "posix.system"),
        (subprocess.Popen, "subprocess.Popen"),
        (eval, "builtins.eval"),
        (getattr, "builtins.getattr"),
        (bytearray, "builtins.bytearray"),
        (np.load, "numpy.load"),
        (np.fromfile, "numpy.fromfile"),
        (np.memmap, "numpy.memmap"),
        (functools.partial, "functools.partial"),
        (importlib.import_module, "importlib.import_module"),
        (uuid.uuid1, "uuid.uuid1"),
    ],
)
def test_functions_in_a_pickle_are_named_and_never_called(
    saved: Save, tmp_path: Path, function: Callable[..., object], name: str, protocol: int
) -> None:
    mark = tmp_path / "was-run"
    content = {"extra": Call(function, f"touch {mark}")} | theirs()
    path = saved(pickle.dumps(content, protocol, fix_imports=False))
    with pytest.raises(NotASplitError, match=rf"Found: a file that tries to load '{name}', which was not loaded"):
        read_dictionary(path)
    assert not mark.exists()


def test_a_partial_and_a_lambda_are_not_loaded(saved: Save) -> None:
    partial = pickle.dumps(theirs(extra=functools.partial(os.system, "true")))
    for content, name in [
        (partial, "functools.partial"),
        (b"c__main__\n<lambda>\n.", "__main__.<lambda>"),  # as pickle names one
        (b"ctypes\nFunctionType\n(ctypes\nCodeType\n", "types.FunctionType"),  # as other tools join one
    ]:
        with pytest.raises(NotASplitError, match=f"tries to load '{name}'"):
            read_dictionary(saved(content + b"."))


@pytest.mark.parametrize(("content", "found"), [
    (b"\x80\x04\x8c\x04uuid\x8c\x09os.system\x93.", "load 'uuid.os.system'"),
    (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "load 'numpy.ndarray.tofile'"),
    (b"\x80\x04\x8c\x0anumpy.core\x8c\x17multiarray._reconstruct\x93.", "load 'numpy.core.multiarray._reconstruct'"),
    (b"(S'true'\niposix\nsystem\n.", "load 'posix.system'"),
    (b"Pname\n.", "load a persistent id"),
    (b"K\x01Q.", "load a persistent id"),
    (b"\x82\x01.", "opcode"),
])  # fmt: skip
def test_dotted_names_and_other_kinds_of_reference_are_refused(saved: Save, content: bytes, found: str) -> None:
    """No chains of attributes, and no other ways to name something."""
    with pytest.raises(NotASplitError, match=found):
        read_dictionary(saved(content))


def test_a_pickle_cannot_change_the_classes_it_names(saved: Save) -> None:
    """A pickled state can set attributes. It must not change a class."""
    for module_name, name in [("uuid", "UUID"), ("uuid", "SafeUUID"), ("numpy", "ndarray"), ("numpy", "dtype")]:
        content = b"c%b\n%b\n(N}X\x04\0\0\0evilK\x01stb." % (module_name.encode(), name.encode())
        with pytest.raises(NotASplitError, match="no pickle, or a truncated or damaged"):
            read_dictionary(saved(content))
        assert not hasattr(pickles._STAND_INS[module_name, name], "evil")
        assert not hasattr(getattr(sys.modules[module_name], name), "evil")


def test_no_malicious_file_crashes_the_process(tmp_path: Path) -> None:
    """Each of these makes pickle or numpy crash or use unlimited memory, so a separate process reads them."""
    deep = 200_000
    head = pickle.dumps(theirs(), protocol=3)[:-1]
    keys = head + b"X\x08\0\0\0row_keyscnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR(K\x01"
    # An object dtype that claims not to be one: numpy would use the bytes of such an array as addresses.
    forged = b"cnumpy\ndtype\nX\x02\0\0\0O8\x89\x88\x87R(K\x03X\x01\0\0\0|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    files = {
        "lists": (head + b"N" + b"]" * deep + b"a" * (deep - 1) + b"s.", "2"),
        "dictionaries": (head + b"N" + b"}N" * deep + b"N" + b"s" * deep + b"s.", "2"),
        "uuids": (
            head + b"Ncuuid\nUUID\nq\x000" + b"h\x00)\x81}X\3\0\0\0int" * deep + b"N" + b"sb" * deep + b"s.",
            "2",
        ),
        "tuples": (head + b")" + b"\x85" * 5 * deep + b"Ns.", "NotASplitError more than 20,000 tuples"),
        "memo": (head + b"Nr\xff\xff\xff\xffNs.", "NotASplitError opcode b'r'"),
        "digits": (head + b"Np4294967295\nNs.", "NotASplitError opcode b'p'"),
        "frame": (b"\x80\x04\x95" + (1 << 40).to_bytes(8, "little") + b"}.", "NotASplitError it is cut off"),
        "addresses": (
            keys + b"K\x01\x85" + forged + b"\x89C\x08AAAAAAAAtbs.",
            "DamagedError row_keys that are not an array of UUIDs",
        ),
        "shape": (
            keys + b"J\xff\xff\xff\x7f\x85" + forged + b"\x89]tbs.",
            "DamagedError row_keys that are not an array of UUIDs",
        ),
    }
    for name, (content, _) in files.items():
        (tmp_path / f"{name}.pckl").write_bytes(content)
    code = (
        "import resource, sys\n"
        "from formats import FormatsError, open_split\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, -1))\n"
        "for place in sys.argv[1:]:\n"
        "    try:\n"
        "        print(len(open_split(place).fingerprints), flush=True)\n"
        "    except FormatsError as error:\n"
        "        print(type(error).__name__, error, flush=True)\n"
    )
    places = [str(tmp_path / f"{name}.pckl") for name in files]
    done = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, len(files)), (done.returncode, lines, done.stderr)
    for (name, (_, expected)), line in zip(files.items(), lines, strict=True):
        kind, _, found = expected.partition(" ")
        assert line.startswith(kind), name
        assert found in line, name


def test_every_opcode_is_known() -> None:
    """Also of the newest protocol: an opcode whose length is misread would be skipped."""
    simple = re.compile(pickles._SIMPLE % b"\0", re.DOTALL)
    for opcode in pickletools.opcodes:
        code, size = opcode.code.encode("latin-1"), opcode.arg.n if opcode.arg else 0
        if opcode.name.startswith("EXT") or opcode.name == "STOP":
            assert simple.match(code + bytes(9)) is None
        elif opcode.name.startswith("TUPLE"):
            assert code in pickles._TUPLES
        elif code in pickles._SIZED:
            widths = {-2: 1, -3: 4, -4: 4, -5: 8, 8: 8}
            assert pickles._SIZED[code] == widths[size], opcode.name
        elif size == pickletools.UP_TO_NEWLINE:
            lines = 2 if "pair" in opcode.arg.name else 1  # type: ignore[union-attr]
            assert simple.match(code + b"1\n" * lines + b"\xff").end() == 1 + 2 * lines, opcode.name  # type: ignore[union-attr]
        else:
            assert simple.match(code + bytes(size) + b"\xff").end() == 1 + size, opcode.name  # type: ignore[union-attr]
