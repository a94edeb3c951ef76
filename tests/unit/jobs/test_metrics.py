"""Metrics of jobs: which counts they have, and where they are served."""

import dataclasses
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from etl.errors import EtlError
from etl.ingest.report import IngestEstimate, IngestReport
from etl.shards.report import ShardReport
from formats import logs
from jobs.metrics import PORT_SETTING, REPORTED, JobMetrics, MetricsOptions, job_metrics
from tests.support.exported_metrics import free_port, samples_in, text_of

ESTIMATE = IngestEstimate(images=1, bytes=2, classes=3, rejected=4, rejected_by_reason={}, images_by_split={})


def session(**conf: str) -> Any:
    """A Spark session that has a configuration, and no tasks."""
    settings = {name.replace("_", "-"): value for name, value in conf.items()}
    found = SimpleNamespace(get=lambda name: settings.get(name.removeprefix("spark.imagestrata.")))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None, getConf=lambda: found))


def counts(metrics: JobMetrics) -> list[float | None]:
    found = samples_in(text_of(metrics))
    names = ("planned_images", "images", "bytes", "rejected_images")
    return [found.get((f"imagestrata_job_{name}", "")) for name in names]


def test_counts_are_those_of_the_progress_and_then_those_of_the_report() -> None:
    metrics, counters = JobMetrics(session(), "shard.py"), SimpleNamespace(images=0, bytes=0, rejected=0)
    assert counts(metrics) == [None] * 4
    metrics.observe(counters, 9)  # type: ignore[arg-type]
    assert counts(metrics) == [9, 0, 0, 0]
    counters.images, counters.bytes, counters.rejected = 10, 1000, 2  # a task that was repeated counts again
    assert counts(metrics) == [9, 10, 1000, 2]
    metrics.finish(SimpleNamespace(images=8, bytes=800, rejected=1))
    assert counts(metrics) == [9, 8, 800, 1]


def test_an_estimate_is_no_count_of_what_was_written() -> None:
    metrics = JobMetrics(session(), "ingest.py")
    metrics.finish(ESTIMATE)
    assert counts(metrics) == [None] * 4


@pytest.mark.parametrize(("command", "report"), [("ingest.py", IngestReport), ("shard.py", ShardReport)])
def test_the_fields_of_a_report_that_count_exist(command: str, report: Any) -> None:
    assert set(REPORTED[command]) <= {one.name for one in dataclasses.fields(report)}


def test_the_state_says_how_a_job_ended() -> None:
    def state(metrics: JobMetrics) -> set[str]:
        found = samples_in(text_of(metrics))
        return {state for (name, state), value in found.items() if name == "imagestrata_job_state" and value}

    done, failed = JobMetrics(session(), "split.py"), JobMetrics(session(), "split.py")
    with done:
        assert state(done) == {"running"}
    with pytest.raises(ValueError, match="no"), failed:
        raise ValueError("no")
    assert (state(done), state(failed)) == ({"done"}, {"failed"})
    assert f'run="{logs.run_id()}"' in text_of(done)


@pytest.mark.parametrize("place", ["option", "configuration"])
def test_metrics_are_served_on_this_machine_until_the_job_ends(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    number = free_port()
    spark = session() if place == "option" else session(metrics_port=str(number))
    options = MetricsOptions(port=number if place == "option" else None)
    with job_metrics(spark, name="split.py", options=options) as metrics:
        metrics.observe(SimpleNamespace(images=1, bytes=2, rejected=3), 4)  # type: ignore[arg-type]
        address = f"http://127.0.0.1:{number}/metrics"
        assert capsys.readouterr().err == f"metrics: {address}\n"
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert 'imagestrata_job_rejected_images{command="split.py"} 3.0' in answer.read().decode()
        with (
            pytest.raises(EtlError, match=rf"metrics at 127\.0\.0\.1 port {number}\. Found: Address already in use"),
            job_metrics(spark, name="split.py", options=options),
        ):
            pass
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=10)


def test_without_a_port_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    with job_metrics(session(metrics_host="0.0.0.0"), name="split.py", options=MetricsOptions()):
        assert capsys.readouterr().err == ""


def test_a_wrong_port_in_the_configuration_is_named() -> None:
    with (
        pytest.raises(EtlError, match=rf"{PORT_SETTING}: wanted a port from 1 to 65535\. Found: '70000'"),
        job_metrics(session(metrics_port="70000"), name="split.py", options=MetricsOptions()),
    ):
        pass
