"""The figures of the splits benchmark."""

from benchmarks.harness.figures import Figure, Figures

_N = "millions of rows"
_SORTED = "repartitionByRange(N, hash).sortWithinPartitions(hash)"
FIGURES = Figures(
    {
        1: Figure(
            f"exact stratified split with positions, its time over {_SORTED} of the same rows", "<=", 2.0, needs=_N
        ),
        2: Figure(
            "exact stratified split without positions, its time over reading and writing the same rows",
            "<=",
            3.5,
            needs=_N,
        ),
        3: Figure("split of rows that lie in Cassandra, its time over pandas'", "<=", 1.0, needs=_N),
        4: Figure("peak anonymous memory of a whole split job, 2 GB heap, over pandas'", "<=", 0.5, needs=_N),
        5: Figure("the whole command from a metadata cache, Spark's start included", "<", 30, "s"),
        6: Figure("one class with 90 % of the rows, time over that of Zipf classes", "<=", 1.3),
        7: Figure("bytes that tasks return to the driver, ten times the rows over the rows", "<=", 1.1, needs=_N),
        8: Figure("bytes that tasks return to the driver in a heap of 4 GB", "<", 64, "MB", needs=_N),
        9: Figure("split that keeps groups whole, its time over the one that does not", "<=", 3),
        10: Figure("groups that lie in more than one split", "<=", 0, "groups"),
        11: Figure(
            "cells that are not their ideal rounded down or up, and classes that lost or won rows", "<=", 0, "cells"
        ),
        12: Figure("largest distance of a split's rows from its ideal", "<", 1, "rows"),
        13: Figure(
            "different assignments for 1, 7, 200 partitions, shuffled rows, retried tasks", "<=", 1, "assignments"
        ),
        14: Figure("--top of one class of all rows, its time over sorting the class", "<=", 0.8, needs=_N),
        15: Figure("--top of 1,000 classes, its time over sorting each class", "<=", 1.1, needs=_N),
    }
)
"""By number. Counts of errors have 0 as their upper limit; counts of different results have 1."""
