"""Near-duplicates: groups compared with brute force."""

import itertools
import random

import pytest
from pyspark.sql import SparkSession

from etl.errors import EtlError
from etl.splits.dealing import near_duplicates
from etl.splits.dealing.near_duplicates import HASHES, LOOK_ALIKES, group_near_duplicates
from tests.support.near_duplicates import brute_force
from tests.support.spark_rows import rows_of


def families(seed: int) -> list[int]:
    """Random hashes with others a few bits away, including chains and equal ones."""
    rng = random.Random(seed)
    found = []
    for _ in range(150):
        value = rng.getrandbits(64)
        for _ in range(rng.randrange(1, 5)):
            found.append(value)
            value ^= sum(1 << bit for bit in rng.sample(range(64), rng.randrange(0, 6)))
    return found


def expected(values: list[int], distance: int) -> dict[int, int]:
    """Groups by index, from comparing each value with each other."""
    twins = [value for value, other in itertools.pairwise(sorted(values)) if value == other]
    near = [(a, b) for a, b in itertools.combinations(sorted(set(values)), 2) if (a ^ b).bit_count() <= distance]
    roots = {**dict(zip(twins, twins, strict=True)), **brute_force(near)}
    return {i: roots[value] for i, value in enumerate(values) if value in roots}


@pytest.mark.parametrize(("distance", "partitions", "driver_pairs"), [(3, 5, 200), (0, 1, 10**6)])
def test_groups_agree_with_brute_force(
    spark: SparkSession, distance: int, partitions: int, driver_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_duplicates, "_DRIVER_PAIRS", driver_pairs)
    values = families(distance)
    signed = [value - (1 << 64) if value >> 63 else value for value in values]
    rows = [(bytearray(i.to_bytes(16, "big")), value) for i, value in enumerate(signed)]
    blank: list[tuple[bytearray, int | None]] = [(bytearray((10**6 + i).to_bytes(16, "big")), None) for i in range(3)]
    hashes = rows_of(spark, [*rows, *blank], HASHES).repartition(partitions)
    found = {
        int.from_bytes(row.id, "big"): row[LOOK_ALIKES] % (1 << 64)
        for row in group_near_duplicates(hashes, distance=distance).collect()
    }
    assert found == expected(values, distance)


def test_many_pairs_are_thinned_out_and_too_many_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = [sum(1 << bit for bit in bits) for bits in itertools.combinations(range(12), 2)]  # each close to all others
    hashes = rows_of(spark, [(bytearray(i.to_bytes(16, "big")), value) for i, value in enumerate(crowd)], HASHES)
    monkeypatch.setattr(near_duplicates, "_DRIVER_PAIRS", 100)
    found = group_near_duplicates(hashes, distance=4).collect()
    assert len(found) == len(crowd)
    assert {row[LOOK_ALIKES] for row in found} == {3}
    monkeypatch.setattr(near_duplicates, "_DRIVER_PAIRS", 10)
    monkeypatch.setattr(near_duplicates, "_ROUNDS", 2)
    with pytest.raises(EtlError, match=r"at most 10 pairs.*Found: 65, within a distance of 4 bits"):
        group_near_duplicates(hashes, distance=4)
