"""The loader's public interface without a database: names, options, splits, and imports."""

import dataclasses
import inspect
import json
import operator
import os
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import loader
from formats import open_split, write_dictionary
from formats.stores.storage import Storage
from schemas import Columns
from tests.support.pictures import picture
from tests.support.split_dictionaries import theirs
from tests.support.split_folders import image_ids, packed, write_split_folder

IDS, LABELS = image_ids(12), [number % 3 for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = {0: "cat", 1: "dog", 2: "owl"}
    return write_split_folder(tmp_path / "split", [(IDS, LABELS), ([], [])], class_names=names)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path / "cache"))


def test_dunder_all_is_complete_and_everything_else_is_private() -> None:
    public = {name for name, value in vars(loader).items() if not name.startswith("_") and not inspect.ismodule(value)}
    lazy = {
        "ImageDataset",
        "S3ImageFolder",
        "S3ImageStream",
        "TorchDataset",
    }  # imported at their first use
    assert public | lazy == set(loader.__all__)
    assert list(loader.__all__) == sorted(loader.__all__)
    modules = {module.name for module in pkgutil.iter_modules(loader.__path__)}
    assert modules >= {"lightning", "shards"}
    assert not modules & set(loader.__all__)
    assert resources.files("loader").joinpath("py.typed").is_file()


def test_the_docstring_lists_all_errors() -> None:
    errors = {name: getattr(loader, name) for name in loader.__all__ if name.endswith("Error")}
    assert loader.__doc__ is not None
    for name, error in errors.items():
        assert issubclass(error, loader.LoaderError)
        assert f"{name}" in loader.__doc__
    assert issubclass(loader.OptionError, ValueError)
    assert issubclass(loader.MissingExtraError, ImportError)


def test_public_names_have_docstrings() -> None:
    for name in loader.__all__:
        value = getattr(loader, name)
        assert inspect.getdoc(value), name
        for member, function in inspect.getmembers(value, inspect.isfunction):
            assert member.startswith("_") or inspect.getdoc(function), f"{name}.{member}"


def test_importing_the_loader_and_opening_a_split_imports_nothing_heavy(folder: Path) -> None:
    """pandas alone takes longer to import than a million rows to open."""
    code = (
        "import sys, loader; from loader.ranks import ranks; "
        "heavy = lambda: [name for name in sys.argv[2:] if name in sys.modules]; print(heavy()); "
        "print(len(loader.open_split(sys.argv[1])), ranks(), heavy())"
    )
    heavy = ["torch", "lightning", "nvidia.dali", "acsylla", "cassandra", "pyspark", "pandas", "etl", "jobs"]
    heavy += ["pyarrow", "fsspec"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), *heavy], capture_output=True, text=True, timeout=120, check=True
    )
    before, after = done.stdout.splitlines()
    assert (before, done.stderr) == ("[]", "")
    assert after.startswith("12 (0, 1) [")
    assert not any(repr(name) in after for name in heavy[:-2])


@pytest.mark.parametrize(
    ("module", "use", "extra"),
    [
        ("acsylla", lambda source: next(source.epoch(0)), "loader"),
        ("nvidia", lambda source: source.read(), "cuda120"),
        ("nvidia", lambda source: loader.ClassificationIterator(source, size=8, train=True), "cuda120"),
        ("torch", lambda source: loader.ClassificationIterator(source, size=8, train=True, output="torch"), "train"),
    ],
    ids=["acsylla", "DALI", "DALI's iterator", "torch"],
)
def test_a_missing_extra_says_what_to_install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    use: Callable[[loader.CassandraSource], object],
    extra: str,
) -> None:
    parts = [name for name in sys.modules if name.startswith((f"{module}.", "cassandra."))]
    for name in (module, "cassandra", *parts):  # imported, perhaps by other tests of this process
        monkeypatch.setitem(sys.modules, name, None)
    with (
        loader.CassandraSource(loader.open_split(folder), hosts="127.0.0.1", batch_size=4) as source,
        pytest.raises(loader.MissingExtraError, match=rf"^Wanted {module}.*pip install 'imagestrata\[{extra}\]'"),
    ):
        use(source)


def test_a_split_knows_its_ids_labels_and_table(folder: Path) -> None:
    split = loader.open_split(folder, index=0)
    assert np.array_equal(split.ids, packed(IDS))
    assert split.labels is not None
    assert split.labels.tolist() == LABELS
    assert (split.ids.dtype, split.labels.dtype) == (np.uint8, np.int32)
    assert (len(split), split.num_classes, split.counts) == (12, 3, {0: 4, 1: 4, 2: 4})
    assert split.class_names == {0: "cat", 1: "dog", 2: "owl"}
    assert (split.data_table, split.columns) == ("test.data", Columns())
    assert len(split.fingerprint) == 64
    assert "index=0: 12 images of 3 classes from test.data" in repr(split)
    with pytest.raises(ValueError, match="read-only"):
        split.ids[0] = 0


def test_what_delivers_batches_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tree" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(picture(1))
    folder = loader.open_folder(tmp_path / "tree")
    with loader.FolderSource(folder, batch_size=4, last_batch_policy="FILL", rank=0, world_size=1) as source:
        batch = next(source.epoch(3))
        assert repr(batch) == "Batch(4 images of 0.0 MB, 1 classes, epoch=3, step=0, repeats=3)"
        masks = dataclasses.replace(batch, labels=batch.labels[:0], label_blobs=[b"x"] * 4, metadata={"path": []})
        assert repr(masks) == "Batch(4 images of 0.0 MB, 4 masks or arrays, metadata path, epoch=3, step=0, repeats=3)"
        dataset = loader.TorchDataset(source, transform=operator.itemgetter(0))
        assert repr(dataset) == f"TorchDataset({source!r}, transform=itemgetter)"
        assert repr(source.epoch(2)) == f"<epoch 2 of {source!r}>"
        batches = loader.ClassificationIterator(source, size=8, train=False)
        assert repr(batches) == f"ClassificationIterator({source!r}, size=8, train=False, output='numpy')"
        arrays = loader.GenericIterator(source, Touch, names=["images"])
        assert repr(arrays) == f"GenericIterator({source!r}, Touch, names=['images'], output='numpy')"


@pytest.mark.parametrize("index", [-1, 2, True, "0", 0.0])
def test_an_invalid_index_is_refused(folder: Path, index: object) -> None:
    with pytest.raises(loader.OptionError, match=f"index from 0 to 1 .*Found: {index!r}"):
        loader.open_split(folder, index=index)  # type: ignore[arg-type]


def test_a_place_that_is_not_a_split_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(loader.SplitError, match=r"Wanted a split folder at .*nowhere\. Found: no _manifest"):
        loader.open_split(tmp_path / "nowhere")
    manifest = folder / "_manifest.json"
    good = json.loads(manifest.read_text())
    for change, message in [
        ({"format": 99}, "Found: format 99"),
        ({"label_type": "text"}, "labels of type int, blob, multi, none .*Found: 'text'"),
        ({"data_table": 'ks.data"; DROP'}, "keyspace.table"),
        ({"columns": {"id": "id", "label": "label", "data": 'd"'}}, "column name"),
    ]:
        manifest.write_text(json.dumps(good | change))
        with pytest.raises(loader.SplitError, match=message):
            loader.open_split(folder)


def test_our_split_dictionary_opens_as_the_same_split(folder: Path, tmp_path: Path) -> None:
    opened = open_split(folder)
    write_dictionary(Storage(tmp_path), "split.pckl", manifest=opened.manifest, splits=[opened.rows(0), opened.rows(1)])
    split, same = loader.open_split(tmp_path / "split.pckl"), loader.open_split(folder)
    assert split.labels is not None
    assert np.array_equal(split.ids, same.ids)
    assert split.labels.tolist() == LABELS
    assert (split.ids.dtype, split.labels.dtype) == (same.ids.dtype, np.int32)
    assert (split.num_classes, split.counts, split.class_names) == (3, {0: 4, 1: 4, 2: 4}, {})
    assert (split.data_table, split.columns, split.address) == ("test.data", Columns(), str(tmp_path / "split.pckl"))
    assert len(split.fingerprint) == 64
    assert len(loader.open_split(tmp_path / "split.pckl", index=1)) == 0
    with pytest.raises(ValueError, match="read-only"):
        split.ids[0] = 0


def test_a_split_dictionary_of_another_tool_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "split.PKL"
    path.write_bytes(pickle.dumps(theirs(split=[np.array([5, 3]), np.array([0, 1, 2])])))
    split = loader.open_split(path, index=1)
    assert np.array_equal(split.ids, packed(IDS[:3]))
    assert (split.labels, split.counts, split.class_names, split.index) == (None, {}, {}, 1)
    assert "index=1: 3 images of 10 classes from imagenette.data" in repr(split)
    with pytest.raises(loader.OptionError, match=r"index from 0 to 1 for .*split\.PKL\. Found: 2"):
        loader.open_split(path, index=2)


class Touch:
    """When unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.system, (f"touch {self.path}",)


def test_an_unreadable_split_dictionary_is_refused(tmp_path: Path) -> None:
    path, mark = tmp_path / "split.pckl", tmp_path / "was-run"
    with pytest.raises(loader.SplitError, match=r"Wanted a split dictionary at .*Found: no such file"):
        loader.open_split(path)
    for changes, message in [
        ({"label_type": "text"}, "labels of type int, blob, multi, none .*Found: 'text'"),
        ({"data_table": 'ks.data"; DROP'}, "keyspace.table"),
        ({"data_col": 'd"'}, "column name"),
        ({"split": [np.array([99])]}, "places outside"),
        ({"extra": Touch(mark)}, "tries to load 'posix.system', which was not loaded"),
    ]:
        path.write_bytes(pickle.dumps(theirs(**changes)))
        with pytest.raises(loader.SplitError, match=message):
            loader.open_split(path)
    assert not mark.exists()


def test_a_split_whose_files_were_changed_is_refused(folder: Path) -> None:
    min((folder / "split=0").iterdir()).write_bytes(b"")
    with pytest.raises(loader.SplitError, match=r"cannot be read.*Make the split again"):
        loader.open_split(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size of at least 1. Found: 0"),
        ({"batch_size": 2.5}, "batch_size as a whole number. Found: 2.5"),
        ({"batch_size": True}, "batch_size as a whole number. Found: True"),
        ({"rank": 1}, "rank and world_size, or neither.* Found: rank=1, world_size=None. Give world_size as well"),
        ({"rank": -1, "world_size": 2}, "rank as a whole number from 0 to 1. Found: -1"),
        ({"rank": 0, "world_size": 0}, "world_size as a whole number of at least 1. Found: 0"),
        ({"last_batch_policy": "fill"}, "last_batch_policy as one of .*'FILL', 'PARTIAL', 'DROP'.*Found: 'fill'"),
        ({"in_order": "no"}, "in_order as True or False. Found: 'no'"),
        ({"shuffle": 1}, "shuffle as True or False. Found: 1"),
        ({"hosts": 5}, "hosts as a list of names or addresses, without port. Found: 5"),
        ({"metadata": 5}, "metadata as a list of different names"),
        ({"metadata": "path"}, "metadata as a list of different names"),
        ({"access": "me"}, "access as loader.Access.* Found: str"),
        ({"memory_budget": 0}, "memory_budget as a whole number of at least 1. Found: 0"),
        ({"max_in_flight": 0}, "max_in_flight as a whole number of at least 1. Found: 0"),
        ({"client": "java"}, r"client as one of \('acsylla', 'cassandra-driver'\)\. Found: 'java'"),
        ({"connections": 0}, "connections as a whole number from 1 to 1024. Found: 0"),
        ({"connections": 10**9}, "connections as a whole number from 1 to 1024. Found: 1000000000"),
        ({"consistency": "local_quorum"}, r"consistency as one of \('LOCAL_QUORUM', 'LOCAL_ONE', .*'local_quorum'"),
        ({"consistency": "EACH_QUORUM"}, "Found: 'EACH_QUORUM'"),
        ({"datacenter": 5}, "datacenter as a name. Found: 5"),
        ({"datacenter": ""}, "datacenter as a name. Found: ''"),
        ({"timeout": 0}, "timeout in seconds, above 0. Found: 0"),
        ({"timeout": float("inf")}, "timeout in seconds, above 0. Found: inf"),
        ({"on_missing": "ignore"}, r"on_missing as one of \('raise', 'skip'\). Found: 'ignore'"),
        ({"port": 70000}, "port as a whole number from 1 to 65535. Found: 70000"),
        ({"hosts": []}, r"hosts as a list .*Found: \[\]"),
        ({"hosts": ""}, "hosts as a list .*Found: ''"),
        ({"hosts": "a,b"}, "hosts as a list .*Found: 'a,b'"),
        ({"hosts": ["127.0.0.1:9042"]}, "without port. Found: "),
        ({"hosts": ["a", 3]}, "hosts as a list .*Found: "),
        ({"seed": "1"}, "seed as a whole number. Found: '1'"),
        ({"username": "me"}, "username and password, or neither"),
    ],
)
def test_options_out_of_range_are_refused(folder: Path, options: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"hosts": ["127.0.0.1"], "batch_size": 4}
    with pytest.raises(loader.OptionError, match=message):
        loader.CassandraSource(loader.open_split(folder), **(usual | options))  # type: ignore[arg-type]


def test_an_empty_split_is_refused(folder: Path) -> None:
    with pytest.raises(loader.OptionError, match=r"at least one row\. Found: 0 rows"):
        loader.CassandraSource(loader.open_split(folder, index=1), hosts="127.0.0.1", batch_size=4)


def test_a_source_shows_its_sizes_and_no_password(folder: Path) -> None:
    source = loader.CassandraSource(
        loader.open_split(folder),
        hosts="db1",
        batch_size=np.int64(5),
        rank=1,
        world_size=2,
        username="u",
        password="pst",
    )
    assert (len(source), source.samples, source.batch_size, source.rank, source.world_size) == (2, 6, 5, 1, 2)
    assert "hosts=['db1']" in repr(source)
    assert "pst" not in repr(source) + repr(vars(source)) + repr(vars(source._engine))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 32.5}, "Found: 32.5"),
        ({"size": 0}, "size as a whole number of at least 1. Found: 0"),
        ({"crop_area": (0.5, 0.2)}, "crop_area as two shares"),
        ({"crop_area": 0.5}, "crop_area as 2 numbers. Found: 0.5"),
        ({"crop_area": (0.5, "1")}, "crop_area as 2 numbers"),
        ({"train": "yes"}, "train as True or False. Found: 'yes'"),
        ({"device_id": -1}, "device_id as a whole number of at least 0. Found: -1"),
        ({"num_threads": 0}, "num_threads as a whole number of at least 1. Found: 0"),
        ({"mean": [0.5]}, r"mean as 3 numbers. Found: \[0.5\]"),
        ({"mean": 5}, "mean as 3 numbers. Found: 5"),
        ({"std": [1, float("nan"), 1]}, "std as 3 numbers"),
        ({"std": [1, 0, 1]}, "std above 0"),
        ({"output": "jax"}, "output as one of .*Found: 'jax'"),
        ({"device_id": 0}, "output='torch' for batches on a GPU. Found: 'numpy' with device_id=0"),
    ],
)
def test_options_of_the_iterator_are_checked(folder: Path, options: dict[str, object], message: str) -> None:
    source = loader.CassandraSource(loader.open_split(folder), hosts="127.0.0.1", batch_size=4)
    with pytest.raises(loader.OptionError, match=message):
        loader.ClassificationIterator(source, **({"size": 8, "train": True} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda source: source.epoch(-1), "epoch as a whole number of at least 0. Found: -1"),  # before it is read
        (lambda source: source.epoch(1.5), "epoch as a whole number of at least 0. Found: 1.5"),
        (lambda source: source.state_dict(epoch=-1, steps=0), "epoch as a whole number of at least 0. Found: -1"),
        (lambda source: source.state_dict(epoch=0, steps=1.5), "steps as a whole number of at least 0. Found: 1.5"),
        (lambda source: next(source.batches(0, every=0)), "every as a whole number of at least 1. Found: 0"),
        (lambda source: next(source.batches(0, offset=-1)), "offset as a whole number of at least 0. Found: -1"),
        (lambda source: loader.TorchDataset(source, transform=5), "transform as a function of a picture. Found: 5"),
        (lambda _: loader.TorchDataset(None), "a source, such as loader.CassandraSource. Found: None"),
        (
            lambda _: loader.ClassificationIterator(None, size=8, train=True),
            "a source, such as loader.CassandraSource. Found: None",
        ),
        (
            lambda _: loader.GenericIterator([], lambda x: x, names=["x"]),
            r"a source, such as loader.CassandraSource. Found: \[\]",
        ),
    ],
)
def test_invalid_arguments_of_sources_and_readers_are_refused(
    folder: Path, ask: Callable[[loader.CassandraSource], object], message: str
) -> None:
    source = loader.CassandraSource(loader.open_split(folder), hosts="127.0.0.1", batch_size=4)
    with pytest.raises(loader.OptionError, match=message):
        ask(source)


def test_an_unreachable_host_is_named_in_time(folder: Path) -> None:
    """The second address is reserved (RFC 5737): packets to it are lost."""
    split = loader.open_split(folder)
    with (
        loader.CassandraSource(split, hosts=["127.0.0.1", "no-such-host.invalid"], port=1, batch_size=4) as source,
        pytest.raises(loader.UnreachableError, match=r"127\.0\.0\.1, no-such-host\.invalid port 1\. Found: "),
    ):
        next(source.epoch(0))
