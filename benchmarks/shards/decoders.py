"""Decoders of the same pictures in the same graph, from our shards on S3 and from files; a process of its own each.

    python -m benchmarks.shards.decoders ORDER

ORDER is JSON: ``decoder`` is a name of `DECODERS`, ``images`` how many are decoded, in whole batches; keys come by the
environment. The last line is JSON: for each batch when it came, the CPU seconds of this process and all below it.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import loader
from benchmarks.shards.readers import Answer, Order, cpu_of_all
from benchmarks.shards.writers import files_of
from loader._iterators import classification

Batches = Iterator[tuple[Any, Any]]


def decode_shards(order: Order) -> Batches:
    """By `loader.ShardSource` and `loader.ClassificationIterator`."""
    ours: Any = loader
    client = import_module("loader.shards").make_client(
        order["url"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    )
    shards = ours.open_shards(order["shards"], client=client)
    source = ours.ShardSource(shards, batch_size=order["batch_size"], seed=0)
    return iter(loader.ClassificationIterator(source, size=order["size"], train=True, num_threads=order["threads"]))


def decode_files(order: Order) -> Batches:
    """By DALI's ``readers.file`` in the graph that `loader.ClassificationIterator` has for training; from memory."""
    fn, pipelines = (import_module(f"nvidia.dali.{name}") for name in ("fn", "pipeline"))
    found = files_of(order["tree"])[: order["images"]]
    names = [os.path.join(order["tree"], path) for path, _ in found]
    for name in names:
        Path(name).read_bytes()  # into the page cache
    pipeline = pipelines.Pipeline(
        batch_size=order["batch_size"],
        num_threads=order["threads"],
        device_id=None,
        seed=1,
        prefetch_queue_depth=2,
        exec_dynamic=True,
    )
    with pipeline:
        pictures, labels = fn.readers.file(files=names, labels=[label for _, label in found], random_shuffle=True)
        pipeline.set_outputs(*classification(pictures, labels, size=order["size"], train=True))
    pipeline.build()

    def outputs() -> Batches:
        while True:
            images, labels = pipeline.run()
            yield np.from_dlpack(images.as_tensor()), np.from_dlpack(labels.as_tensor())

    return outputs()


DECODERS: Mapping[str, Callable[[Order], Batches]] = {"shards": decode_shards, "files": decode_files}


def decode(order: Order) -> Answer:
    """Decode, and tell how it went. Raises RuntimeError for pictures of another shape or number."""
    count, size = order["batch_size"], order["size"]
    batches = DECODERS[order["decoder"]](order)
    got: list[float] = []
    cpu: list[float] = []
    began = time.monotonic()
    for images, labels in islice(batches, order["images"] // count):
        if images.shape != (count, 3, size, size) or len(labels) != count:
            raise RuntimeError(f"Wanted {count} pictures of {size} pixels. Found: {images.shape}")
        got.append(time.monotonic() - began)
        cpu.append(cpu_of_all())
    if len(got) * count != order["images"]:
        raise RuntimeError(f"Wanted {order['images']} pictures. Found: {len(got) * count}")
    return {"asked": [0.0, *got[:-1]], "got": got, "counts": [count] * len(got), "cpu": cpu}


def main() -> int:
    """Do what is ordered."""
    print(json.dumps(decode(json.loads(sys.argv[1]))), flush=True)
    sys.stdout.flush()
    os._exit(0)  # an epoch that is not read to its end has threads that wait; what they cost is told already


if __name__ == "__main__":
    main()
