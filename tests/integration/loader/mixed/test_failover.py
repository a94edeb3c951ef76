"""A split in Cassandra, in a bucket and on a disk: an epoch goes on when a store goes away."""

import logging
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from torch.utils.data import DataLoader

import loader
from formats.checksums import checksum
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.devstack.servers.delay import DelayProxy
from imagestrata.devstack.servers.s3 import S3
from loader.shards import make_client
from loader.shards.shard_set import shards_in
from tests.support.pictures import write_table
from tests.support.services import fresh_name
from tests.support.shard_folders import shards_of
from tests.support.split_folders import image_ids, write_split_folder

COUNT = 400

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def test_an_epoch_goes_on_from_a_bucket_when_the_cluster_goes_away(
    cassandra: Cassandra, keyspace: str, s3: S3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = image_ids(COUNT)
    images = [f"image {number} ".encode() * 50 for number in range(COUNT)]
    write_table(f"{keyspace}.blobs", dict(zip(ids, images, strict=True)), hosts=cassandra.hosts, port=cassandra.port)
    folder = write_split_folder(
        tmp_path / "split", [(ids, [0, 1] * (COUNT // 2))], data_table=f"{keyspace}.blobs",
        checksums=[list(map(checksum, images))],
    )  # fmt: skip
    split = loader.open_split(folder, cache=tmp_path / "cache")
    samples = [{"jpg": image, "cls": b"0", "json": b"{}"} for image in images]
    near = shards_of(tmp_path / "shards", samples, together=30, of=split.fingerprint)
    s3.make_bucket(bucket := fresh_name("bucket"))
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    storage = client.storage(bucket, "copy")
    for file in sorted((tmp_path / "shards").iterdir()):
        storage.write_bytes(file.name, file.read_bytes())
    far = shards_in(client, bucket, "copy")
    usual: dict[str, Any] = {"batch_size": 16, "rank": 0, "world_size": 1, "max_in_flight": 32, "timeout": 30.0}
    with loader.FailoverSource(split, stores=[near], **usual) as source:
        wanted = [(batch.positions.tolist(), list(batch.images)) for batch in source.epoch(0)]
    with (
        DelayProxy(cassandra.port, rtt=0.01) as proxy,
        loader.FailoverSource(
            split, stores=[loader.Cluster(hosts=["127.0.0.1"], port=proxy.port), far], **usual, memory_budget=20_000
        ) as source,
        caplog.at_level(logging.WARNING, "loader"),
    ):
        found = []
        for batch in source.epoch(0):
            found.append((batch.positions.tolist(), list(batch.images)))
            if len(found) == 5:
                proxy.end()
                state = source.state_dict()
    assert found == wanted
    assert "does not answer, reading from" in caplog.text
    there = loader.Cluster(hosts=cassandra.hosts, port=cassandra.port)
    with loader.FailoverSource(split, stores=[far, there], **usual) as source:
        source.load_state_dict(state)
        batches = DataLoader(loader.TorchDataset(source), batch_size=None, num_workers=2)
        rest = [batch.positions.tolist() for batch in batches]
    assert rest == [positions for positions, _ in wanted[5:]]
    with loader.CassandraSource(split, cluster=there, **usual) as source:
        assert [(one.positions.tolist(), list(one.images)) for one in source.epoch(0)] == wanted
    assert {UUID(bytes=one.tobytes()) for one in split.ids} == {*ids}
    assert sorted(chain(*(positions for positions, _ in wanted))) == list(range(COUNT))
