"""Features of splits: each sample has the values of its position, whatever the order, the ranks and what is skipped."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import loader
from formats.splits.features import value_sums
from loader.prefetch.split_features import open_features
from tests.support.pictures import picture
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder

COUNT = 43
IDS = image_ids(COUNT, first=500)
LABELS = [number % 10 for number in range(COUNT)]
MISSING = {3, 17, 42}
ROWS = {one: picture(label) for one, label in zip(IDS, LABELS, strict=True)}
NUMBERS = np.arange(COUNT)
VALUES: dict[str, tuple[str, Any]] = {
    "embedding": ("float[5]", np.random.default_rng(0).normal(size=(COUNT, 5)).astype("<f4")),
    "flag": ("boolean", NUMBERS % 3 == 0),
    "size": ("int", -NUMBERS.astype(np.int32)),
    "phash": ("bigint", NUMBERS.astype(np.int64) * 7 - (1 << 62)),
    "sharpness": ("float", NUMBERS.astype(np.float32) / 3),
    "ratio": ("double", NUMBERS / 7),
}
NAMES = tuple(VALUES)


def made(folder: Path) -> loader.Split:
    features: Any = {name: (kind, [values, values[:4]]) for name, (kind, values) in VALUES.items()}
    features["about"] = ("text", [[str(number) for number in range(COUNT)], list("abcd")])
    write_split_folder(folder / "split", [(IDS, LABELS), (IDS[:4], LABELS[:4])], features=features)
    return loader.open_split(folder / "split", cache=folder / "cache")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    return made(tmp_path_factory.mktemp("made"))


def check(features: Any, positions: np.ndarray) -> None:
    """The values are those of the positions, with the type of the field."""
    assert tuple(features) == NAMES
    for name, (_, values) in VALUES.items():
        found = np.asarray(features[name])
        assert found.dtype == values.dtype, name
        np.testing.assert_array_equal(found, values[positions])


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("policy", ["PARTIAL", "FILL", "DROP"])
def test_batches_have_the_values_of_their_samples(split: loader.Split, policy: Any, in_order: bool) -> None:
    rows = ROWS | {one: None for number, one in enumerate(IDS) if number in MISSING}
    seen: list[int] = []
    for rank in range(2):
        options: Any = {"last_batch_policy": policy, "in_order": in_order, "rank": rank, "world_size": 2}
        source = RowSource(
            split, rows=rows, features=NAMES, batch_size=4, on_missing="skip", max_missing=0.5, **options
        )
        with source:
            for epoch in range(2):
                for batch in source.epoch(epoch):
                    check(batch.features, batch.positions)
                    assert batch.ids.tobytes() == split.ids[batch.positions].tobytes()
                    seen += batch.positions.tolist()
    assert MISSING.isdisjoint(seen)
    assert policy == "DROP" or set(seen) == set(range(COUNT)) - MISSING


def test_a_resumed_or_pickled_source_continues_with_the_same_values(split: loader.Split) -> None:
    with RowSource(split, rows=ROWS, features=NAMES, batch_size=4) as source:
        wanted = [(batch.positions.tolist(), batch.features) for batch in source.epoch(1)][3:]
        source.load_state_dict(source.state_dict(epoch=1, steps=3))
        data = pickle.dumps(source)
        assert VALUES["embedding"][1].tobytes() not in data
        with pickle.loads(data) as again:
            found = [(batch.positions.tolist(), batch.features) for batch in again.epoch(1)]
    assert [positions for positions, _ in found] == [positions for positions, _ in wanted]
    for positions, features in found:
        check(features, np.array(positions))


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_gets_the_values_as_tensors(split: loader.Split, workers: int) -> None:
    import torch
    from torch.utils.data import DataLoader

    def transform(image: Any) -> Any:
        return torch.tensor(image.getpixel((0, 0)))

    with RowSource(split, rows=ROWS, features=["embedding", "phash"], batch_size=4) as source:
        dataset = loader.TorchDataset(source, transform=transform)
        of_epoch = [(batch.positions, batch.labels) for batch in source.again().epoch(0)]
        found = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    for (positions, wanted), (_, labels, embedding, phash) in zip(of_epoch, found, strict=True):
        assert (labels.tolist(), embedding.dtype, phash.dtype) == (wanted.tolist(), torch.float32, torch.int64)
        np.testing.assert_array_equal(embedding.numpy(), VALUES["embedding"][1][positions])
        np.testing.assert_array_equal(phash.numpy(), VALUES["phash"][1][positions])


def test_dali_gets_the_values_with_their_types(split: loader.Split) -> None:
    with RowSource(split, rows=ROWS, features=NAMES, batch_size=4) as source:
        batches = loader.ClassificationIterator(source, size=8, train=False)
        for _, labels, *features in batches:
            assert batches.given is not None
            assert labels.tolist() == batches.given.labels.tolist()
            check(dict(zip(NAMES, features, strict=True)), batches.given.positions)
        rows = ROWS | {IDS[number]: b"no picture" for number in MISSING}
    with RowSource(split, rows=rows, features=["embedding"], batch_size=4) as source:
        batches = loader.ClassificationIterator(source, size=8, train=False, on_undecodable="skip")
        positions: list[int] = []
        for _, _, embedding in batches:
            assert batches.given is not None
            np.testing.assert_array_equal(embedding, VALUES["embedding"][1][batches.given.positions])
            positions += batches.given.positions.tolist()
    assert sorted(positions) == sorted(set(range(COUNT)) - MISSING)


def test_a_feature_that_the_split_does_not_have_is_refused(split: loader.Split, tmp_path: Path) -> None:
    for name, message in (
        ("entropy", r"the split .*: embedding \(embedding@v1\), .*Found: 'entropy'.*split.py --features emb.*,entropy"),
        ("about", r"a number, a boolean or a vector. Found: about, of type text. Read it from the Parquet files in "),
    ):
        with pytest.raises(loader.OptionError, match=message):
            loader.CassandraSource(split, hosts="nowhere", batch_size=2, features=[name])
    bare = loader.open_split(write_split_folder(tmp_path / "bare", [(IDS, LABELS)]), cache=tmp_path)
    with pytest.raises(loader.OptionError, match=r"it has none. Found: 'sharpness'. .* --features sharpness"):
        loader.ImageDataset(bare, hosts="nowhere", features=["sharpness"])


def _damage(folder: Path, how: str) -> None:
    file = sorted((folder / "split" / "_features" / "embedding@v1" / "split=0").iterdir())[0]
    table = pq.read_table(file)
    if how == "gone":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "fewer rows":
        pq.write_table(table.slice(1), file)
    elif how == "of others":
        pq.write_table(table.set_column(1, "embedding", table["embedding"].take(list(range(len(table)))[::-1])), file)
    elif how == "shorter":
        pq.write_table(table.set_column(1, "embedding", [[value.as_py()[:-4] for value in table["embedding"]]]), file)
    elif how == "of another split":
        other = folder / "split" / "_features" / "embedding@v1" / "split=1"
        shutil.copy(sorted(other.iterdir())[0], file)


@pytest.mark.parametrize("how", ["gone", "cut", "fewer rows", "of others", "shorter", "of another split"])
def test_damaged_files_are_refused(tmp_path: Path, how: str) -> None:
    split = made(tmp_path)
    _damage(tmp_path, how)
    with pytest.raises(
        loader.SplitError, match=r"Wanted 43 values of embedding \(embedding@v1\) for split 0 of .*made"
    ):
        open_features(split, ["embedding"])
    assert open_features(split, ["flag"])["flag"].tolist() == VALUES["flag"][1].tolist()


def test_a_service_stands_for_the_fields_of_its_views(tmp_path: Path) -> None:
    made(tmp_path)
    manifest = json.loads((tmp_path / "split" / "_manifest.json").read_text())
    manifest["services"] = {
        "sorting@v9": ["flag@v1"], "sorting@v10": ["size@v1", "ratio@v1"], "texts@v1": ["about@v1"]
    }  # fmt: skip
    (tmp_path / "split" / "_manifest.json").write_text(json.dumps(manifest))
    split = loader.open_split(tmp_path / "split", cache=tmp_path / "cache")
    assert list(open_features(split, ["service:sorting"])) == ["size", "ratio"]  # of the newest version
    found = open_features(split, ["ratio", "service:sorting@v9", "service:sorting@v10"])
    assert list(found) == ["ratio", "flag", "size"]
    assert found["ratio"].tolist() == VALUES["ratio"][1].tolist()
    for name, message in (
        ("service:other", r"made with: sorting@v9, sorting@v10, texts@v1\. Found: 'service:other'\. Make .*e:other"),
        ("service:sorting@v1", "Found: 'service:sorting@v1'"),
        ("service:texts", "Found: about, of type text"),
        ("service:", "different names"),
    ):
        with pytest.raises(loader.OptionError, match=message):
            open_features(split, [name])


def test_a_split_that_was_replaced_is_refused(tmp_path: Path) -> None:
    split = made(tmp_path)
    write_split_folder(tmp_path / "split", [(IDS[::-1], LABELS)], features={"flag": ("boolean", [VALUES["flag"][1]])})
    with pytest.raises(loader.SplitError, match="The split was replaced"):
        open_features(split, ["flag"])


def test_positions_and_values_are_hashed_together() -> None:
    values = VALUES["embedding"][1]
    assert value_sums(NUMBERS, values) != value_sums(NUMBERS, values[::-1])
    assert value_sums(NUMBERS[:2], np.array([0.0, -0.0])) == value_sums(NUMBERS[:2], np.zeros(2))
