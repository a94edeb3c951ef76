"""Rows of a real table in DALI: decoded, with their own labels, masks and metadata."""

from pathlib import Path
from typing import Any

import numpy as np

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import execute, picture, shades, write_table
from tests.support.split_folders import image_ids, write_split_folder

COUNT = 43
IDS = image_ids(COUNT, first=1000)
LABELS = [number % 10 for number in range(COUNT)]


def test_decoded_batches_match_the_rows(cassandra: Cassandra, keyspace: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    rows = {one: picture(label, format="JPEG") for one, label in zip(IDS, LABELS, strict=True)}
    write_table(f"{keyspace}.data", rows, **where)
    folder = write_split_folder(tmp_path / "split", [(IDS, LABELS)], data_table=f"{keyspace}.data")
    split = loader.open_split(folder, cache=tmp_path / "cache")
    with loader.CassandraSource(split, batch_size=8, **where) as source:
        batches = loader.ClassificationIterator(source, size=24, train=False, mean=(0, 0, 0), std=(1, 1, 1))
        for epoch in range(2):
            found = [(shades(images).tolist(), labels.tolist()) for images, labels in batches]
            assert found == [(batch.labels.tolist(),) * 2 for batch in source.again().epoch(epoch)]


def test_masks_and_metadata_are_outputs_of_a_pipeline(cassandra: Cassandra, keyspace: str, tmp_path: Path) -> None:
    from nvidia.dali import Pipeline

    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    masks = {one: bytes([number]) * 3 for number, one in enumerate(IDS)}
    write_table(f"{keyspace}.data", dict.fromkeys(IDS, picture(0)), label_type="blob", labels=masks, **where)
    execute(
        f"CREATE TABLE {keyspace}.metadata (id uuid PRIMARY KEY, width int, path text)",
        *(
            f"INSERT INTO {keyspace}.metadata (id, width, path) VALUES ({one}, {number}, 'p/{number}')"
            for number, one in enumerate(IDS)
        ),
        **where,
    )
    folder = write_split_folder(
        tmp_path / "split",
        [(IDS, [-1] * COUNT)],
        data_table=f"{keyspace}.data",
        metadata_table=f"{keyspace}.metadata",
        label_type="blob",
    )
    split = loader.open_split(folder, cache=tmp_path / "cache")
    with loader.CassandraSource(split, batch_size=8, metadata=["path", "width"], **where) as source:
        pipeline = Pipeline(batch_size=8, num_threads=2, device_id=None)
        with pipeline:
            pipeline.set_outputs(*source.read())
        _, found, path, width = pipeline.run()
        first = next(source.epoch(0))
    assert [np.array(one).tobytes() for one in found] == first.label_blobs
    assert [np.array(one).tobytes().decode() for one in path] == first.metadata["path"]
    assert np.array(width.as_tensor())[:, 0].tolist() == first.metadata["width"] == first.positions.tolist()
