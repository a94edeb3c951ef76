"""`imagestrata plan`: its numbers, its advice, and bad options."""

import json
from typing import Any

import pytest

from imagestrata.cli import main
from imagestrata.planner.command import improved, limits
from imagestrata.planner.simulation import Plan, simulate

_USUAL = ["plan", "--rtt", "150ms", "--image", "110kB", "--gpus", "8", "--step", "180ms", "--decode", "2.5ms"]


def test_a_plan_says_that_nothing_is_to_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_USUAL, "--bandwidth", "20Gbit"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a round trip of 150 ms, images of 110 kB"
    assert lines[1].split() == ["images/s", "11,378", "of", "11,378", "that", "the", "GPUs", "take"]
    assert lines[2].split() == ["GPUs", "wait", "never"]
    assert lines[-1] == "Nothing to change: the GPUs do not wait."


def test_advice_is_simulated_and_followed_by_a_plan_that_does_not_wait(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--memory-budget", "32M", "--connections", "2", "--threads", "3", "--json"]
    assert main([*_USUAL, *few]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"]["waiting"] > 0.5
    assert min(found["limits"], key=found["limits"].get) == "connections"
    changes = found["changes"]
    assert set(changes) == {"memory_budget", "connections", "threads"}
    assert found["changed"]["waiting"] < 0.01
    again = [
        *("--memory-budget", str(changes["memory_budget"]), "--connections", str(changes["connections"])),
        *("--threads", str(changes["threads"])),
    ]
    assert main([*_USUAL, *again]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing to change: the GPUs do not wait."


@pytest.mark.parametrize("changes", [
    {"image_bytes": 5_000_000, "round_trip": 0.02, "batch_size": 16, "step": 0.1, "connections": 4},
    {"image_bytes": 100_000_000, "round_trip": 0.01, "batch_size": 8, "step": 1.0},
    {"image_bytes": 700_000, "round_trip": 0.0005, "batch_size": 1, "gpus": 64, "step": 0.2, "bandwidth": 1e8},
    {"image_bytes": 110_000, "batch_size": 512, "step": 0.05, "memory_budget": 30_000_000},
    {"image_bytes": 110_000, "round_trip": 0.01, "step": 0.01, "memory_budget": 1},
    {"image_bytes": 1_100_000, "round_trip": 0.05, "step": 0.2, "connections": 1},
])  # fmt: skip
def test_no_limit_is_exceeded_and_the_changes_reach_what_the_gpus_take(changes: dict[str, Any]) -> None:
    plan = Plan(**{"round_trip": 0.15} | changes)
    assert simulate(plan).rate <= 1.03 * min(limits(plan).values())
    better = improved(plan)
    fixed = min(value for name, value in limits(better).items() if name in ("GPUs", "reading", "network"))
    assert simulate(better).rate == pytest.approx(fixed, rel=0.05)


@pytest.mark.parametrize(("options", "word"), [
    (["--bandwidth", "1Gbit"], "network: smaller images below 11 kB"),
    (["--cluster", "5000"], "cluster: more nodes"),
    (["--step", "20ms"], "reading: a rank reads with one core"),
])  # fmt: skip
def test_limits_that_no_option_changes_are_named(
    options: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_USUAL, *options]) == 0
    assert word in capsys.readouterr().out


def test_without_a_step_the_plan_is_for_the_rate_that_comes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rtt", "0.05s", "--image", "100000", "--bandwidth", "100MB/s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["images/s", "1,000"]
    assert "GPUs" not in "\n".join(lines[2:])
    assert lines[-1] == "Nothing to change: no option of the loader limits it."


def test_changes_that_give_nothing_are_not_advised(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rtt", "5ms", "--image", "110kB", "--batch", "100000", "--step", "1ms", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["changes"], found["changed"]) == ({}, None)
    assert found["outcome"]["rate"] <= min(found["limits"].values())


@pytest.mark.parametrize("options", [
    ["--image", "1TB"], ["--image", "110kB", "--batch", "1000000000"], ["--image", "110kB", "--step", "100000s"],
])  # fmt: skip
def test_a_plan_that_would_take_hours_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rtt", "150ms", *options]) == 1
    assert "so that a plan takes seconds. Found: " in capsys.readouterr().err


@pytest.mark.parametrize(("usual", "other"), [
    (["--rtt", "0ms", "--bandwidth", "10Gbit"], ["--rtt", "0", "--bandwidth", "10gbps"]),
    (["--rtt", "0.15s", "--bandwidth", "1GB"], ["--rtt", "150 ms", "--bandwidth", "8 Gbit/s"]),
])  # fmt: skip
def test_units_have_several_spellings(usual: list[str], other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for options in (usual, other):
        assert main(["plan", "--image", "110kB", *options, "--step", "100ms"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]


@pytest.mark.parametrize(("options", "word"), [
    ([], "--rtt and --image"),
    (["--rtt", "150", "--image", "1k"], "a time with a unit"),
    (["--rtt", "150ms"], "wanted --image"),
    (["--rtt", "1s", "--image", "1k", "--bandwidth", "0Gbit"], "bits or bytes a second"),
    (["--rtt", "1s", "--image", "1k", "--bandwidth", "fast"], "bits or bytes a second"),
    (["--rtt", "1s", "--image", "1k", "--cluster", "nan"], "a number above 0"),
    (["--rtt", "1s", "--image", "1k", "--gpus", "0"], "a whole number of at least 1"),
    (["--rtt", "100s", "--image", "1k"], "a round trip below 60 s"),
    (["--rtt", "1s", "--image", "1k", "--window", "1"], "at least 10,000 bytes"),
    (["--measure", "127.0.0.1"], "Found: only --measure"),
    (["--split", "splits/digits"], "Found: only --split"),
])  # fmt: skip
def test_bad_options_are_named(options: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *options])
    assert ended.value.code == 2
    assert word in capsys.readouterr().err
