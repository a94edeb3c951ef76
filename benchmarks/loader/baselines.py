"""Baselines of the loader: DALI's file reader, and torch's workers with a driver each."""

import os
import time
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np

import loader
from benchmarks.harness.consumers import Answer, Order, Recorder, read_files
from benchmarks.harness.pictures import id_sum
from schemas import Columns, TableName


def decode_files(order: Order) -> Answer:
    """One pass over the files of a split's rows, in the training graph of `loader.ClassificationIterator`."""
    split = loader.open_split(order["split"], cache=order["cache"])
    assert split.labels is not None
    labels = split.labels.tolist()
    names = [os.path.join(order["files"], f"{label:06}.jpg") for label in labels]
    batches = islice(read_files(names, labels, order=order), len(names) // order["batch_size"])
    recorder = Recorder(order)
    return recorder.answer({"labels": recorder.take_decoded(batches, size=order["size"])})


class _Images:
    """A torch dataset: one image of a split by position, read through a separate session per worker."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._split = loader.open_split(order["split"], cache=order["cache"])
        self._session: Any = None

    def __len__(self) -> int:
        return int(self._order["limit"])

    def __getitem__(self, position: int) -> tuple[bytes, bytes, float]:
        if self._session is None:
            from cassandra.cluster import Cluster

            self._session = Cluster(self._order["hosts"], port=self._order["port"]).connect()
            column, table = Columns(), TableName.parse(self._split.data_table).quoted
            query = f'SELECT "{column.data}" FROM {table} WHERE "{column.id}" = ?'
            self._select = self._session.prepare(query)
        id = self._split.ids[position].tobytes()
        data = self._session.execute(self._select, (UUID(bytes=id),)).one()[0]
        return id, data, time.monotonic()


def read_by_workers(order: Order) -> Answer:
    """Read the first positions of a split, in order.

    Rates are computed from the times at which workers read single images, which vary less than those of batches.
    """
    import torch.utils.data

    images: Any = _Images(order)
    batches = torch.utils.data.DataLoader(images, num_workers=4, batch_size=order["batch_size"])
    size = ids = 0
    times: list[float] = []
    began = time.monotonic()
    for names, found, read in batches:
        times += read.tolist()
        if any(one[-16:] != name for name, one in zip(names, found, strict=True)):
            raise RuntimeError("Wanted the images of the ids. Found: others.")
        size += sum(map(len, found))
        ids = (ids + id_sum(np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, 16))) % (1 << 64)
    return as_answer(sorted(at - began for at in times), {"bytes": size, "ids": ids})


def as_answer(times: list[float], sums: dict[str, int]) -> Answer:
    """The answer of a consumer, from the time of each image: about a dozen parts instead of batches."""
    part = max(1, len(times) // 24)
    counts = [min(part, len(times) - start) for start in range(0, len(times), part)]
    got = [times[min(start + part, len(times)) - 1] for start in range(0, len(times), part)]
    course = {"asked": got, "got": got, "counts": counts, "cpu": [time.process_time()] * len(got)}
    return {**course, "sums": {"images": len(times), **sums}}
