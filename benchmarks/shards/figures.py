"""The figures of the shards benchmark, and how much it measures."""

from dataclasses import dataclass

from benchmarks.harness.figures import Figure, Figures

LIMIT = 2.58
"""The rank correlation of n unrelated pairs is below ``LIMIT / sqrt(n - 1)`` in 99 of 100 cases."""

_RAMP = "an epoch that is long beside its ramp"
_STREAMED = "streaming from S3, encoded: images per client CPU second over"

FIGURES = Figures(
    {
        1: Figure("writing to S3: Spark on 2 cores over webdataset's ShardWriter in one process", ">=", 1.5),
        2: Figure("writing to S3: anonymous memory of the largest worker", "<", 250, "MB", needs="shards of 100 MB"),
        3: Figure(f"{_STREAMED} webdataset", ">=", 2),
        4: Figure(f"{_STREAMED} MosaicML streaming", ">", 1),
        5: Figure(f"{_STREAMED} LitData", ">", 1),
        6: Figure("streaming from S3, encoded, images/s: 50 ms over 0 ms", ">=", 0.9, needs=_RAMP),
        7: Figure("streaming from S3, encoded, images/s: 150 ms over 0 ms", ">=", 0.9, needs=_RAMP),
        8: Figure("decoded from S3 over DALI's readers.file, images per client CPU second", ">=", 0.93),
        9: Figure("listing 1 M keys", "<", 60, "s", needs="a million keys"),
        10: Figure("5 shuffles of sorted classes: largest rank correlation, times sqrt(n - 1)", "<=", LIMIT, ""),
    }
)


@dataclass(frozen=True)
class Sizes:
    """How many images and classes there are, and how often they are read and written."""

    pictures: int = 20_000
    classes: int = 100
    maxsize: int = 100_000_000
    """Bytes of a shard."""
    decoded: int = 6_144
    """Images of each run that decodes, in whole batches."""
    keys: int = 1_000_000
    """For the figures of listing."""
    many_pairs: int = 7
    """Runs of each contender for targets within a tenth of 1."""
    pairs: int = 3
    written: int = 3
    """Runs of each writer."""
    seeds: int = 5
    buffer: int = 5_000
    """The size of a shuffle buffer that must fail the test of order."""


FULL = Sizes()
QUICK = Sizes(600, 20, 5_000_000, 320, 20_000, many_pairs=3, pairs=3, written=1, seeds=1, buffer=150)
