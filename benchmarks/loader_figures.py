"""What the benchmark of the loader reports, in its order, and how much it measures."""

from dataclasses import dataclass

from benchmarks.figures import Figure, Figures

DEMAND = 1_000

FIGURES = Figures(
    {
        1: Figure("fetch only, 0 ms, images/s over a bare acsylla loop that throws the bytes away", ">=", 0.90),
        2: Figure("client CPU per image, fetch to DALI's input", "<=", 0.15, "ms"),
        3: Figure("fetch only, in order, steady: 150 ms over 0 ms", ">=", 0.95),
        4: Figure("fetch only, in order, steady: 300 ms over 0 ms", ">=", 0.90),
        5: Figure("stalls at a demand of 1,000 images/s, 150 ms", "<", 2, "%"),
        6: Figure("stalls at a demand of 1,000 images/s, 300 ms", "<", 5, "%"),
        7: Figure("from the first request to 0.9 of the steady rate, 150 ms, first epoch", "<", 2, "s"),
        8: Figure("decoded, cropped, normalised on the CPU: 150 ms over 0 ms", ">=", 0.97),
        9: Figure("decoded from Cassandra over DALI's readers.file, images per client CPU second", ">=", 0.93),
        10: Figure("1 % of the answers held for 2 s: rate over the undisturbed rate", ">=", 0.80),
        11: Figure("1 % of the answers held for 2 s: reads beyond one an image", "<=", 3, "%"),
        12: Figure("time to the first batch after connecting, 1.28 M rows, no cache", "<", 1.5, "s"),
        13: Figure("time to the first batch after connecting, 100 M rows, no cache", "<", 40, "s"),
        14: Figure("time to the first batch after connecting, 100 M rows, with cache", "<", 1, "s"),
        15: Figure("anonymous memory of a rank with a split of 100 M rows, beyond its budget", "<", 500, "MB"),
        16: Figure("three nodes with a copy each, fetch only, images/s: LOCAL_QUORUM over LOCAL_ONE", ">=", 0.50),
    }
)
"""By number."""


@dataclass(frozen=True)
class Sizes:
    """How many images lie in Cassandra, how many are read in each run, how many runs there are."""

    batch: int
    budget: int
    """Bytes that a source may hold; runs must be long beside it."""
    blobs: int
    pictures: int
    warm: int
    """Images of each run before those that count."""
    fetched: int
    decoded: int
    held: int
    demanded: int
    compared: int
    """Images of each run for the plot."""
    rtts: tuple[float, ...]
    """Round trips of the plot, in seconds."""
    worker_batch: int
    worker_seconds: float
    """About how long torch's workers may read, for the plot."""
    many_pairs: int
    """Runs of each contender where the target is within a tenth of 1."""
    pairs: int
    small: int
    large: int
    opened: int
    """How often each split is opened."""
    read: int
    """Batches that are read of the large split, whose memory is measured."""


FULL = Sizes(
    batch=256,
    budget=256_000_000,
    blobs=6_000,
    pictures=2_048,
    warm=12_000,
    fetched=24_000,
    decoded=6_144,
    held=36_000,
    demanded=30_000,
    compared=15_000,
    rtts=(0.0, 0.01, 0.05, 0.15, 0.3),
    worker_batch=64,
    worker_seconds=12.0,
    many_pairs=7,
    pairs=3,
    small=1_280_000,
    large=100_000_000,
    opened=3,
    read=12,
)
QUICK = Sizes(
    batch=128,
    budget=64_000_000,
    blobs=1_500,
    pictures=512,
    warm=1_500,
    fetched=3_072,
    decoded=1_024,
    held=3_072,
    demanded=3_072,
    compared=3_072,
    rtts=(0.0, 0.15, 0.3),
    worker_batch=16,
    worker_seconds=2.0,
    many_pairs=1,
    pairs=1,
    small=100_000,
    large=1_000_000,
    opened=1,
    read=3,
)
