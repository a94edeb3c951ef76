"""Decoders of the same images in the same graph, from our shards on S3 and from files, each in a separate process.

A request has ``decoder``, a name of `DECODERS`, and ``images``, the number to decode in whole batches; keys are in the
environment. The answer: when each batch came, and the CPU seconds of this process and its descendants until then.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import Any

import loader
from benchmarks.harness.consumers import Recorder, read_files
from benchmarks.shards.readers import Answer, Order, cpu_of_all
from benchmarks.shards.writers import files_of

Batches = Iterator[tuple[Any, Any]]


def decode_shards(order: Order) -> Batches:
    """Through `loader.ShardSource` and `loader.ClassificationIterator`."""
    ours: Any = loader
    client = import_module("loader.shards").make_client(
        order["url"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    )
    shards = ours.open_shards(order["shards"], client=client)
    source = ours.ShardSource(shards, batch_size=order["batch_size"], seed=0)
    return iter(loader.ClassificationIterator(source, size=order["size"], train=True, num_threads=order["threads"]))


def decode_files(order: Order) -> Batches:
    """With DALI's ``readers.file``, from the page cache."""
    found = files_of(order["tree"])[: order["images"]]
    names, labels = [os.path.join(order["tree"], path) for path, _ in found], [label for _, label in found]
    return read_files(names, labels, order=order)


DECODERS: Mapping[str, Callable[[Order], Batches]] = {"shards": decode_shards, "files": decode_files}


def decode(order: Order) -> Answer:
    """Decode and report. Raises RuntimeError for a wrong shape or number of images."""
    count = order["images"] // order["batch_size"]
    batches = islice(DECODERS[order["decoder"]](order), count)
    recorder = Recorder(order, cpu=cpu_of_all)
    labels = recorder.take_decoded(batches, size=order["size"])
    if recorder.counts != [order["batch_size"]] * count:
        raise RuntimeError(f"Wanted {order['images']} pictures. Found: {sum(recorder.counts)}")
    return recorder.answer({"labels": labels})
