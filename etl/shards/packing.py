"""The shard of each image, as transforms: all images in one seeded order, cut where shards are full.

The driver computes the cuts from a number and a size for each image (24 bytes, with a digest). A join of that number
with a small table then gives the shard of each image, so images need neither be numbered nor sorted as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.splits.positions import partition_keys
from formats.shards.layout import cut

_BUCKETS_A_SHARD = 16
_MOST_BUCKET_BITS = 16
_SIGN = -(1 << 63)
_ORDER_BITS = 62


def position_order(rows: int) -> Column:
    """The order of images of a split: the position, scaled to the whole range."""
    # So all buckets of the join fill.
    return F.shiftleft("position", _ORDER_BITS - max(1, rows - 1).bit_length())


@dataclass(frozen=True)
class Packing:
    """The starts of shards: ``starts``, int64 ``(shards,)``, has the order of the first image of each, ascending.
    ``firsts``, int64 ``(shards + 1,)``, has the number of images before each shard, and then the number of all images.
    """

    starts: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, order: NDArray[np.int64], sizes: NDArray[np.int64], *, maxsize: int, maxcount: int) -> "Packing":
        """Pack images with these orders and sizes, in any sequence. Raises `formats.ShardError`."""
        places = np.argsort(order, kind="stable")
        order = order[places]
        firsts = cut(sizes[places], maxsize=maxsize, maxcount=maxcount, order=order)
        return cls(order[firsts[:-1]], firsts)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def shift(self) -> int:
        """The number of bits by which an order is shifted to get its bucket of the join. A shard has a few buckets."""
        return 64 - min(_MOST_BUCKET_BITS, (_BUCKETS_A_SHARD * len(self)).bit_length())

    @cached_property
    def ranges(self) -> Mapping[str, Sequence[int]]:
        """The table of the join: ``bucket, low, high`` (inclusive), the ``shard`` and the ``key`` of its partition. It
        has a row for each bucket that a shard overlaps; low and high are those of the whole shard.
        """
        buckets = self._buckets(self.starts)
        keys = partition_keys(len(self.starts))
        found: dict[str, list[int]] = {name: [] for name in ("bucket", "low", "high", "shard", "key")}
        for shard, low in enumerate(self.starts.tolist()):
            is_last = shard + 1 == len(self.starts)
            high = (1 << 63) - 1 if is_last else int(self.starts[shard + 1]) - 1
            last = int(self._buckets(np.array([high], dtype=np.int64))[0])
            for bucket in range(int(buckets[shard]), last + 1):
                for name, value in (("bucket", bucket), ("low", low), ("high", high), ("shard", shard)):
                    found[name].append(value)
                found["key"].append(keys[shard])
        return found

    def _buckets(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        unsigned = order.view(np.uint64) ^ np.uint64(1 << 63)
        return (unsigned >> np.uint64(self.shift)).astype(np.int64)


def add_shards(samples: DataFrame, /, *, packing: Packing, ranges: DataFrame) -> DataFrame:
    """Samples with their ``shard``, one partition per shard, each in order. ``ranges`` is the packing's, as a table."""
    bucket = F.shiftrightunsigned(F.col("order").bitwiseXOR(F.lit(_SIGN)), packing.shift).cast("int")
    inside = (F.col("order_bucket") == F.col("bucket")) & F.col("order").between(F.col("low"), F.col("high"))
    placed = samples.withColumn("order_bucket", bucket).join(F.broadcast(ranges), on=inside, how="inner")
    return (
        placed.repartition(len(packing), "key")
        .sortWithinPartitions("order", "id")
        .drop("order_bucket", "bucket", "low", "high", "key")
    )
