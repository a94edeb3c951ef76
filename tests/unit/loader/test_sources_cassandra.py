"""A Cassandra source before it connects: what it reads, and its pickles."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from formats import open_split, write_dictionary
from formats.stores.storage import Storage
from loader.cassandra.clients import target_of
from loader.order.history import without_past
from tests.support.split_folders import image_ids, without_labels, write_split_folder

IDS = image_ids(23)
LABELS = [number % 7 for number in range(23)]
CLUSTER = loader.Cluster(hosts="db1", access=loader.Access())


def test_splits_and_sources_pickle_as_how_to_open_them(tmp_path: Path) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS)])
    split = loader.open_split(folder, cache=tmp_path / "cache")
    source = loader.CassandraSource(
        split, hosts="db1", batch_size=4, username="reader", password="swordfish", memory_budget=12_345
    )
    source.load_state_dict(source.state_dict(epoch=1, steps=3))
    data = pickle.dumps(source)
    assert IDS[5].bytes not in data
    again = pickle.loads(data)
    assert (repr(again), again.options, again.first_epoch) == (repr(source), source.options, 1)
    assert again.first_step(1) == 3
    assert isinstance(again.split.ids.base, np.memmap)
    again.close()
    assert pickle.loads(pickle.dumps(again)).state_dict() == source.state_dict()


def test_a_split_that_was_made_again_of_other_bytes_does_not_continue(tmp_path: Path) -> None:
    """Its fingerprint, and so the order of its samples, is the same."""
    folder, cache = tmp_path / "split", tmp_path / "cache"

    def source(first: int | None, **options: Any) -> loader.CassandraSource:
        shutil.rmtree(folder, ignore_errors=True)
        sums = None if first is None else [range(first, first + 23)]
        split = loader.open_split(write_split_folder(folder, [(IDS, LABELS)], checksums=sums), cache=cache)
        return loader.CassandraSource(split, hosts="db1", batch_size=4, **options)

    earlier = source(1)
    packed, state = pickle.dumps(earlier), earlier.state_dict(epoch=1, steps=3)
    source(1).load_state_dict(state)
    later = source(24)
    with pytest.raises(loader.StateError, match=r"split was made again .*split\.py --as-of\), give on_changed="):
        later.load_state_dict(state)
    with pytest.raises(loader.SplitError, match=r"the fingerprint of checksums .* The split was replaced"):
        pickle.loads(packed)
    for able in (source(24, on_changed="accept"), source(None)):
        able.load_state_dict(state)
        given = {name: value for name, value in without_past(state).items() if name != "checksums"}
        assert without_past(able.state_dict()) == given
        later.load_state_dict(able.state_dict())  # from here on it compares with its own
        given = without_past(state) | {"checksums": later.split.checksums_fingerprint}
        assert without_past(later.state_dict()) == given


def test_a_split_that_was_not_opened_pickles_with_its_arrays(tmp_path: Path) -> None:
    split = loader.open_split(write_split_folder(tmp_path / "split", [(IDS, LABELS)]), cache=tmp_path / "cache")
    arrays = without_labels(split)
    same = pickle.loads(pickle.dumps(arrays))
    assert (np.array_equal(same.ids, arrays.ids), same.labels, repr(same)) == (True, None, repr(arrays))


def test_labels_are_read_from_the_table_only_if_the_split_has_none(tmp_path: Path) -> None:
    """Our own dictionary contains the labels, and is the folder's split in the same order."""
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS), (IDS, LABELS)])
    opened = open_split(folder)
    write_dictionary(Storage(tmp_path), "split.pckl", manifest=opened.manifest, splits=[opened.rows(0)])
    split = loader.open_split(folder, cache=tmp_path / "cache")
    same = loader.open_split(tmp_path / "split.pckl")
    assert split.labels is not None
    assert same.labels is not None
    assert (same.ids.tolist(), same.labels.tolist()) == (split.ids.tolist(), split.labels.tolist())
    for one, kind, label in [
        (split, "int", None),
        (same, "int", None),
        (None, "int", "int"),
        (None, "blob", "blob"),
        (None, "multi", "blob"),
        (None, "none", None),
    ]:
        target = target_of(one or without_labels(split, label_type=kind), CLUSTER)
        assert target.label == label


def test_a_missing_image_is_explained_by_the_tables_of_its_split(tmp_path: Path) -> None:
    folder = write_split_folder(
        tmp_path / "split", [(IDS, LABELS)], data_table="train.data", metadata_table="val.metadata"
    )
    named = rf"{folder} lists images of val\.metadata, which are read from train\.data\. .* made from other tables"
    replaced = rf"{folder} names the table train\.data, but other\.data is read instead"
    for data_table, message in ((None, named), ("train.data", named), ("other.data", replaced)):
        split = loader.open_rows(folder, data_table=data_table, cache=tmp_path / "cache")
        for one in (split, pickle.loads(pickle.dumps(split))):
            target = target_of(one, CLUSTER)
            with pytest.raises(loader.MissingImageError, match=message):
                target.image(IDS[0].bytes, None)
