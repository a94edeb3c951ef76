"""The figures of the loader benchmark."""

from benchmarks.harness.figures import Figure, Figures

DEMAND = 1_000
_RAMP = "an epoch that is long beside its ramp"
_FEWER, _MANY = "1.28 M rows", "100 M rows"

FIGURES = Figures(
    {
        1: Figure("fetch only, 0 ms, images/s over a bare acsylla loop that throws the bytes away", ">=", 0.90),
        2: Figure("client CPU per image, fetch to DALI's input", "<=", 0.15, "ms"),
        3: Figure("fetch only, in order, steady: 150 ms over 0 ms", ">=", 0.95, needs=_RAMP),
        4: Figure("fetch only, in order, steady: 300 ms over 0 ms", ">=", 0.90, needs=_RAMP),
        5: Figure("stalls at a demand of 1,000 images/s, 150 ms", "<", 2, "%"),
        6: Figure("stalls at a demand of 1,000 images/s, 300 ms", "<", 5, "%"),
        7: Figure("from the first request to 0.9 of the steady rate, 150 ms, first epoch", "<", 2, "s"),
        8: Figure("decoded, cropped, normalised on the CPU: 150 ms over 0 ms", ">=", 0.97),
        9: Figure("decoded from Cassandra over DALI's readers.file, images per client CPU second", ">=", 0.93),
        10: Figure("1 % of the answers held for 2 s: rate over the undisturbed rate", ">=", 0.80),
        11: Figure("1 % of the answers held for 2 s: reads beyond one an image", "<=", 3, "%"),
        12: Figure("time to the first batch after connecting, 1.28 M rows, no cache", "<", 1.5, "s", needs=_FEWER),
        13: Figure("time to the first batch after connecting, 100 M rows, no cache", "<", 40, "s", needs=_MANY),
        14: Figure("time to the first batch after connecting, 100 M rows, with cache", "<", 1, "s", needs=_MANY),
        15: Figure("anonymous memory of a rank with a split of 100 M rows, beyond its budget", "<", 500, "MB", _MANY),
        16: Figure("three nodes with a copy each, fetch only, images/s: LOCAL_QUORUM over LOCAL_ONE", ">=", 0.50),
        17: Figure("client CPU per image of a split with checksums, fetch only, beyond one without", "<=", 0.02, "ms"),
        18: Figure("three nodes with a copy each, images/s of a split with checksums over one without", ">=", 1.0),
    }
)
