"""torch's workers while the parent is connected: forked and spawned ones read through separate clients."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import SHADES, picture, write_table
from tests.support.services import fresh_name
from tests.support.split_folders import image_ids, write_split_folder

COUNT = 43
IDS = image_ids(COUNT, first=5000)
LABELS = [number % 10 for number in range(COUNT)]

# Warnings that a test has more workers than the machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def split(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    table = f"{fresh_name('torch')}.data"
    rows = {one: picture(label) for one, label in zip(IDS, LABELS, strict=True)}
    write_table(table, rows, hosts=cassandra.hosts, port=cassandra.port)
    folder = write_split_folder(tmp_path_factory.mktemp("split"), [(IDS, LABELS)], data_table=table)
    return loader.open_split(folder, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def source(
    split: loader.Split, cassandra: Cassandra, request: pytest.FixtureRequest
) -> Iterator[loader.CassandraSource]:
    """A source that is connected and has read. Its client is the fixture's parameter."""
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    with loader.CassandraSource(split, batch_size=4, client=getattr(request, "param", None), **where) as made:
        next(made.epoch(7))
        yield made


@pytest.mark.parametrize("source", ["acsylla", "cassandra-driver"], indirect=True)
def test_forked_workers_read_epochs_in_order(source: loader.CassandraSource) -> None:
    from torch.utils.data import DataLoader

    batches = DataLoader(loader.TorchDataset(source), batch_size=None, num_workers=2)
    for epoch in range(2):
        wanted = list(source.again().epoch(epoch))
        found = list(batches)
        assert [(batch.epoch, batch.step) for batch in found] == [(epoch, step) for step in range(len(source))]
        for batch, same in zip(found, wanted, strict=True):
            assert (batch.images, batch.positions.tolist()) == (same.images, same.positions.tolist())
            assert batch.labels.tolist() == same.labels.tolist() == [LABELS[place] for place in batch.positions]
            assert batch.images == [picture(label) for label in batch.labels.tolist()]


def test_spawned_workers_turn_pictures_into_tensors(source: loader.CassandraSource) -> None:
    import torch
    from torch.utils.data import DataLoader

    from tests.support.transforms import small

    dataset = loader.TorchDataset(source, transform=small)
    batches = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    found = list(batches)
    assert [labels.tolist() for _, labels in found] == [batch.labels.tolist() for batch in source.epoch(0)]
    for images, labels in found:
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(images, (SHADES * labels).to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3))


def test_an_unpickled_source_resumes_from_its_state(source: loader.CassandraSource) -> None:
    wanted = [batch.positions.tolist() for batch in source.epoch(1)]
    source.load_state_dict(source.state_dict(epoch=1, steps=3))
    with pickle.loads(pickle.dumps(source)) as again:
        assert [batch.positions.tolist() for batch in again.epoch(1)] == wanted[3:]


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_a_dataset_by_index_reads_in_forked_workers(split: loader.Split, cassandra: Cassandra, client: Any) -> None:
    import torch
    from torch.utils.data import DataLoader

    from tests.support.transforms import small

    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    with loader.ImageDataset(split, small, client=client, **where) as dataset:
        assert dataset[7][1] == LABELS[7]  # a connection, which no forked worker may use
        found = list(DataLoader(dataset, batch_size=8, num_workers=2))
        assert torch.cat([labels for _, labels in found]).tolist() == dataset.targets.tolist() == LABELS
        for images, labels in found:
            assert torch.equal(images, (SHADES * labels).to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3))
        assert dataset[8][1] == LABELS[8]
