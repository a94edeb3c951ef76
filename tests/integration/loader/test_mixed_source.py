"""Several real tables and class folders as one source."""

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import write_table
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.trees import plant

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def test_two_tables_and_a_folder_are_read_as_one(cassandra: Cassandra, keyspace: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    parts: dict[str, loader.Split] = {}
    for number, name in enumerate(("photos", "scans")):
        ids = image_ids(20, first=5000 * (number + 1))
        write_table(f"{keyspace}.{name}", {one: f"{name} {one}".encode() for one in ids}, **where)
        folder = write_split_folder(tmp_path / name, [(ids, [0, 1] * 10)], data_table=f"{keyspace}.{name}")
        parts[name] = loader.open_split(folder, cache=tmp_path / "cache")
    parts["files"] = loader.open_folder(plant(tmp_path / "tree", {f"{n % 2}/{n}.png": b"files" for n in range(6)}))
    mixture = loader.mix_splits(parts)
    shares = {"photos": 1, "scans": 2, "files": 1}
    with loader.MixedSource(mixture, batch_size=8, shares=shares, rank=0, world_size=1, **where) as source:
        counts: Counter[str] = Counter()
        for batch in source.epoch(0):
            names = [mixture.names[number] for number in mixture.part_numbers(batch.positions)]
            for name, one, image in zip(names, batch.ids, batch.images, strict=True):
                wanted = name if name == "files" else f"{name} {uuid.UUID(bytes=one.tobytes())}"
                assert image.decode() == wanted
            assert abs(names.count("scans") - len(batch) / 2) < 1
            counts.update(names)
        assert counts == {"photos": 12, "scans": 23, "files": 11}
        workers = DataLoader(loader.TorchDataset(source.again()), batch_size=None, num_workers=2)
        epoch = [one.positions.tolist() for one in source.again().epoch(0)]
        assert [one.positions.tolist() for one in workers] == epoch
    gone = loader.mix_splits({**parts, "gone": replace(parts["scans"], data_table=f"{keyspace}.gone")})
    with (
        loader.MixedSource(gone, batch_size=8, rank=0, world_size=1, **where) as source,
        pytest.raises(loader.TableError, match=rf"{keyspace}\.gone"),
    ):
        list(source.epoch(0))
