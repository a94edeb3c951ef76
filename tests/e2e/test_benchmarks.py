"""Benchmarks as commands: all rows of each, from little data."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.parent.name for path in ROOT.glob("benchmarks/*/__main__.py"))


def bench(name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_lists_its_rows(name: str) -> None:
    done = bench(name, "--only", "0")
    assert done.returncode == 2
    assert "Wanted numbers of rows from 1 to" in done.stderr
    assert "\n   1  " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_measures_all_its_rows_at_its_smallest_size(name: str) -> None:
    done = bench(name)
    assert done.returncode == 0, done.stderr  # else something was not measured
    assert f"{name}.json" in done.stdout
