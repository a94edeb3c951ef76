"""OpenLineage events, read back with the client's own classes, and targets that fail or are wrong."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openlineage.client import event_v2 as ol
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    output_statistics_output_dataset,
)
from openlineage.client.serde import Serde

from etl.catalog.events import Dataset, Flow, RunEvents
from etl.errors import EtlError
from schemas import TableName


def flow(report: Any) -> Flow:
    written = [Dataset("splits/a/split=0", "ab" * 32, rows=5, bytes=70, files=2), Dataset("s3://bucket/x/y")]
    return Flow([Dataset(TableName("ks", "metadata"))], written if report else [])


events: Callable[[str], RunEvents] = lambda target: RunEvents(  # noqa: E731
    target, name="split", flow=flow, cassandra="cassandra://db:9042"
)


def facets(found: dict[str, Any], **kinds: Any) -> dict[str, Any]:
    """Facets as objects of their classes, which refuse fields that they do not have."""
    return {
        name: kinds[name](**{key: text for key, text in facet.items() if not key.startswith("_")})
        for name, facet in found.items()
        if name in kinds
    }


def read_back(path: Path) -> list[ol.RunEvent]:
    """The events of a file, made with the client's classes. They check ids, times and addresses."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        version = dataset_version_dataset.DatasetVersionDatasetFacet
        found.append(
            ol.RunEvent(
                eventType=ol.RunState[event["eventType"]],
                eventTime=event["eventTime"],
                run=ol.Run(
                    event["run"]["runId"],
                    facets(event["run"]["facets"], errorMessage=error_message_run.ErrorMessageRunFacet),
                ),
                job=ol.Job(event["job"]["namespace"], event["job"]["name"]),
                inputs=[ol.InputDataset(one["namespace"], one["name"]) for one in event["inputs"]],
                outputs=[
                    ol.OutputDataset(
                        one["namespace"],
                        one["name"],
                        facets=facets(one["facets"], version=version),
                        outputFacets=facets(one["outputFacets"], outputStatistics=statistics),
                    )
                    for one in event["outputs"]
                ],
                producer=event["producer"],
            )
        )
        assert event["schemaURL"] == Serde.to_dict(found[-1])["schemaURL"]
    return found


def test_events_have_datasets_with_fingerprints_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with events(f"file:{tmp_path}/events.json") as run:
        run.complete("report")
    with pytest.raises(EtlError), events(f"file:{tmp_path}/events.json"):
        raise EtlError("Wanted images. Found: none")
    with pytest.raises(KeyboardInterrupt), events(f"file:{tmp_path}/events.json"):
        raise KeyboardInterrupt
    start, complete, *_, failed, _, aborted = read_back(tmp_path / "events.json")
    assert [one.eventType.name for one in (start, complete, failed, aborted) if one.eventType] == [
        "START", "COMPLETE", "FAIL", "ABORT"
    ]  # fmt: skip
    assert start.run.runId == complete.run.runId != failed.run.runId
    assert [(one.namespace, one.name) for one in start.inputs or []] == [("cassandra://db:9042", "ks.metadata")]
    assert not start.outputs
    split, other = complete.outputs or []
    assert (split.namespace, split.name) == ("file", f"{tmp_path}/splits/a/split=0")
    assert split.facets["version"].datasetVersion == "ab" * 32  # type: ignore[index,attr-defined]
    counts = split.outputFacets["outputStatistics"]  # type: ignore[index]
    assert (counts.rowCount, counts.size, counts.fileCount) == (5, 70, 2)  # type: ignore[attr-defined]
    assert (other.namespace, other.name, other.facets) == ("s3://bucket", "x/y", {})
    assert failed.run.facets["errorMessage"].message == "Wanted images. Found: none"  # type: ignore[index,attr-defined]


@pytest.mark.parametrize("target", ["file:{}/nowhere/events.json", "http://127.0.0.1:9"])
def test_a_target_that_fails_warns(target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="imagestrata.openlineage"), events(target.format(tmp_path)) as run:
        run.complete("report")
    assert caplog.text.count("no OpenLineage event") == 2


@pytest.mark.parametrize("target", ["", "nowhere", "file:", "ftp://host", "http://", "http://user:secret@host"])
def test_a_wrong_target_is_refused_without_its_secrets(target: str) -> None:
    with pytest.raises(EtlError, match=r"Wanted console, file:PATH") as refused:
        events(target)
    assert "secret" not in str(refused.value)


def test_without_a_target_nothing_is_sent() -> None:
    with RunEvents(None, name="split", flow=flow, cassandra="") as run:
        run.complete("report")
