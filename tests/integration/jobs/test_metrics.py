"""What jobs serve to Prometheus while they run, against their reports."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from formats import logs
from jobs import ingest, shard
from jobs.metrics import JobMetrics
from tests.support.commands import in_living_session
from tests.support.exported_metrics import free_port, samples_in
from tests.support.trees import PlanOf, plant, tree

Finish = Callable[[JobMetrics, object], None]


@pytest.mark.parametrize("name", ["ingest", "shard"])
def test_served_metrics_are_those_of_the_progress_and_at_the_end_equal_the_report(
    spark: SparkSession,
    plan_of: PlanOf,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(logs.FORM, "json")
    root = plant(tree(tmp_path / "tree", each=3), {"train/a/bad.png": b"no picture"})
    tables = plan_of(root).tables
    given = {
        "ingest": [f"--data-table={tables.data}", f"--metadata-table={tables.metadata}", "--split-subdir=val"],
        "shard": [f"--out={tmp_path / 'out'}"],
    }[name]
    address = f"http://127.0.0.1:{(port := free_port())}/metrics"
    seen: list[Mapping[tuple[str, str], float]] = []

    def scrape() -> None:
        with urllib.request.urlopen(address, timeout=30) as answer:
            seen.append(samples_in(answer.read().decode()))

    def finish(metrics: JobMetrics, report: object, finished: Finish = JobMetrics.finish) -> None:
        scrape()
        finished(metrics, report)
        scrape()

    monkeypatch.setattr(JobMetrics, "finish", finish)
    job = {"ingest": ingest, "shard": shard}[name]
    command = [str(root), "--split-subdir=train", *given, "--max-errors=1", f"--metrics-port={port}", "--json"]
    with in_living_session():
        assert job.main(command) == 0
    out, err = capfd.readouterr()
    report = json.loads(out.splitlines()[-1])
    rejected = report["quarantined" if name == "ingest" else "rejected"]
    assert (report["images"], rejected) == (9 if name == "shard" else 18, 1)
    for found in seen:
        assert found["imagestrata_job_planned_images", ""] == report["images"] + rejected
        assert found["imagestrata_job_images", ""] == report["images"]
        assert found["imagestrata_job_bytes", ""] == report["bytes"] > 0
        assert found["imagestrata_job_rejected_images", ""] == rejected
        assert found["imagestrata_job_state", "running"] == 1
        assert found["imagestrata_job_tasks", "completed"] > 0
    assert len(seen) == 2
    told = [json.loads(line) for line in err.splitlines() if line.startswith('{"time"')]
    assert {(one["run"], one["command"]) for one in told} == {(report["log_run"], f"{name}.py")}
    assert f"metrics: {address}" in {one["message"] for one in told}
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=10)
