"""Damaged files of every format give a result or an error of ours, in bounded time; `make fuzz` reads more of them."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from tests.support.fuzzing.mutations import mutated
from tests.support.fuzzing.reading import found_in, read
from tests.support.fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_give_results_or_errors_of_ours(name: str) -> None:
    assert found_in(name, range(100)) == []


def _with(**changes: object) -> Callable[[bytes], bytes]:
    return lambda seed: json.dumps({**json.loads(seed), **changes}).encode()


def _with_share(**changes: object) -> Callable[[bytes], bytes]:
    share = {"rank": 0, "world_size": 1, "batch_size": 8, "end": 9, "late": [], **changes}
    return _with(share=share)


# What `make fuzz` has found, before it was mended.
@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param(
            "shard piece", lambda seed: seed[: seed.rindex(b"ustar") - 257 + 124], id="a header is cut before its size"
        ),
        pytest.param(
            "split file", lambda seed: seed.replace(b"position", b"pos\xfftion"), id="a name of a column is no text"
        ),
        pytest.param("split manifest", lambda seed: seed.replace(b'"rows": 9', b'"rows": ' + b"9" * 40), id="rows"),
        pytest.param("definitions", lambda seed: b"a = " + b"[" * 5000, id="brackets in a definition"),
        pytest.param("loader state", _with(rows=1 << 64, start=1 << 63), id="places above int64"),
        pytest.param("loader state", _with_share(batch_size=1 << 63), id="a batch above int64"),
    ],
)
def test_found_inputs_give_errors_of_ours(name: str, change: Callable[[bytes], bytes]) -> None:
    seeds = TARGETS[name].seeds()
    changed = change(seeds[0])
    assert changed not in seeds
    read(name, changed)


def test_damaged_zstd_data_leaves_no_memory_behind() -> None:
    data = mutated(TARGETS["zstd"].seeds(), 0)
    read("zstd", data)
    tracemalloc.start()
    try:
        for _ in range(3):
            read("zstd", data)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
