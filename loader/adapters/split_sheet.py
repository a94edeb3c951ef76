"""Contact sheets of splits: some of their images, read from where they are."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from PIL import Image

from loader.adapters.contact_sheet import checked_count, nothing_to_show, sheet_of_batch
from loader.batch import Batch
from loader.cassandra.cluster import Cluster, ClusterOptions, names_given
from loader.errors import OptionError
from loader.mixed.fetchers import fetchers_of
from loader.options import MOST_SHOWN, check_int
from loader.prefetch.fetch_thread import fetch_engine
from loader.prefetch.split_batches import batcher_of, read_batch
from loader.shards.shard_set import Shards
from loader.sources import ShardSource
from loader.splits import Split

_BUDGET = 256_000_000


def sheet_of_split(
    split: Split,
    which: Any,
    cluster: Cluster | None,
    where: ClusterOptions,
    change: Callable[[Batch], Batch] = lambda batch: batch,
) -> Image.Image:
    """What `Split.show` returns. ``change`` says what is shown instead of the images that were read."""
    if isinstance(split, Shards):
        if named := names_given(cluster, where):
            raise OptionError(f"Wanted no {named[0]}: the images are read from {split.address}. Found: one")
        return sheet_of_batch(_first_of_shards(split, which), split.class_names)
    if not _is_list(which):
        positions = np.arange(min(checked_count(which), len(split)), dtype=np.int64)
    else:
        positions = np.array([check_int("position", one, 0, len(split) - 1) for one in which], dtype=np.int64)
        checked_count(len(positions))
    make_fetcher, _ = fetchers_of(split, cluster, where)
    engine = fetch_engine(
        make_fetcher,
        batcher_of(split, batch_size=MOST_SHOWN),
        budget=_BUDGET,
        max_in_flight=MOST_SHOWN,
    )
    try:
        return sheet_of_batch(change(read_batch(engine, split, positions)), split.class_names)
    finally:
        engine.close()


def _first_of_shards(shards: Shards, which: Any) -> Batch:
    if _is_list(which):
        raise OptionError(f"Wanted a number of pictures: shards have no positions to choose by. Found: {which!r}")
    with ShardSource(shards, batch_size=checked_count(which), rank=0, world_size=1, shuffle=False) as source:
        for batch in source.epoch(0):
            return batch
    raise nothing_to_show()


def _is_list(which: Any) -> bool:
    return isinstance(which, Iterable) and not isinstance(which, str)
