"""The transforms over histories give what the functions of one image's history give."""

import random
from collections import defaultdict
from typing import Any

from pyspark.sql import SparkSession

from etl.tables.states import last_removal, last_removals, state_at, states_at
from schemas.tables import DELETED, PRUNED
from tests.support.spark_rows import rows_of

HISTORY = (
    "id STRING, until BIGINT, since BIGINT, kind STRING, sha256 BINARY, xxhash64 BIGINT, kept BOOLEAN, source STRING, "
    "reason STRING, at TIMESTAMP"
)
IMAGES = 2000


def histories() -> dict[str, list[dict[str, Any]]]:
    """Histories of up to five rows, also such as no run should leave."""
    numbers, found = random.Random(7), defaultdict(list)
    for image in range(IMAGES):
        for until in numbers.sample(range(1, 8), numbers.randint(1, 5)):
            since = None if numbers.random() < 0.1 else numbers.randint(0, until)
            kind = numbers.choice(["replaced", DELETED, PRUNED])
            sha256 = None if numbers.random() < 0.1 else bytearray(b"digest")
            row = {"id": str(image), "until": until, "since": since, "kind": kind, "sha256": sha256}
            of_bytes = {"xxhash64": numbers.choice([None, 1, 2]), "kept": numbers.choice([None, False, True])}
            found[str(image)].append(row | of_bytes)
    return found


def test_the_transforms_say_of_all_images_what_the_functions_say_of_one(spark: SparkSession) -> None:
    known = histories()
    rows = [(*row.values(), "source", None, None) for of_image in known.values() for row in of_image]
    table = rows_of(spark, rows, HISTORY).cache()
    removals = {image: last_removal(history) for image, history in known.items()}
    wanted = {image: (row["kind"], row["until"]) for image, row in removals.items() if row is not None}
    found = table.transform(last_removals).collect()
    assert {row.id: (row.removed.kind, row.removed.until) for row in found} == wanted
    for sequence in (0, 3, 6):
        states = {image: state_at(history, sequence=sequence) for image, history in known.items()}
        held = {image: (row["since"], row["until"], row["kept"]) for image, row in states.items() if row is not None}
        found = table.transform(states_at, sequence=sequence).collect()
        assert {row.id: (row.since, row.until, row.kept) for row in found} == held
        assert len(found) == len(held)
    table.unpersist()
