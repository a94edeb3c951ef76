"""Processes that benchmarks run and sample."""

import os
import sys

import pytest

from benchmarks.harness.processes import (
    anonymous_mb,
    answer_of,
    cpu_seconds,
    descendants,
    peak,
    quarter_peaks,
    run_process,
    tree_mb,
)


def test_peaks_are_reported_for_each_quarter_of_the_run() -> None:
    samples = [(0.0, 5.0), (9.9, 1.0), (10.0, 2.0), (12.6, 3.0), (15.1, 9.0), (15.2, 4.0), (20.0, 6.0), (20.1, 50.0)]
    assert quarter_peaks(samples, start=10.0, end=20.0) == [2.0, 3.0, 9.0, 6.0]
    assert quarter_peaks([], start=0.0, end=1.0) == [0.0] * 4


def test_processes_are_found_and_measured() -> None:
    assert os.getpid() in descendants(os.getppid())
    assert anonymous_mb(os.getpid()) > 1
    assert cpu_seconds(os.getpid()) > 0
    gone = 1 << 30
    assert (anonymous_mb(gone), cpu_seconds(gone), descendants(gone)) == (0.0, 0.0, [])


def test_a_process_is_watched_until_it_says_that_it_is_done() -> None:
    work = (
        "import json, time; held = bytearray(60_000_000); time.sleep(0.5); at = time.monotonic();"
        "more = bytearray(200_000_000); time.sleep(0.5); print('noise'); print(json.dumps({'ended': at}))"
    )
    finished = run_process([sys.executable, "-c", work], limit=60, look=tree_mb)
    assert 60 < peak(finished.samples, end=finished.answer["ended"]) < 200
    assert max(memory for _, memory in finished.samples) > 250
    assert finished.seconds > 1
    with pytest.raises(RuntimeError, match=r"Found: 1, \['ZeroDivisionError"):
        run_process([sys.executable, "-c", "1 / 0"], limit=60)


def test_the_answer_is_the_last_line_of_json() -> None:
    assert answer_of(b'noise\n{"a": 1}\n{"a": 2}\nleaked: 1\n') == {"a": 2}
    with pytest.raises(RuntimeError, match="Wanted a line of JSON"):
        answer_of(b"noise\n")
