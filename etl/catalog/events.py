"""OpenLineage events of runs: what they read and wrote, with fingerprints as the versions of datasets.

A run never fails because an event cannot be sent.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

from etl.errors import EtlError, one_line
from formats.origin import VERSION
from schemas import TableName

log = logging.getLogger("imagestrata.openlineage")

SETTING = "spark.imagestrata.openlineage"
_PRODUCER = f"urn:imagestrata:{VERSION}"
_WANTED = "Wanted console, file:PATH, http://HOST:PORT, https://HOST or client"
_SECONDS = 5.0
_LETTERS = 1000
"""The most letters of an error: those of Spark have traces."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset of an event."""

    place: TableName | str  # a table, a path or an address
    version: str | None = None  # its fingerprint
    rows: int | None = None  # the images that were written; None for an input
    bytes: int | None = None
    files: int | None = None  # the number of files that were written


@dataclass(frozen=True, slots=True)
class Flow:
    """What a job reads and writes."""

    inputs: list[Dataset] = field(default_factory=list)
    outputs: list[Dataset] = field(default_factory=list)


class RunEvents:
    """The events of one run. A context manager: START on entering; FAIL or ABORT if the block raises. ``target`` is
    where they go: ``console``, ``file:PATH``, an address, or ``client`` for what the client's own settings say; None
    for nowhere. ``flow`` returns what the job reads and writes, given its report or None, and ``cassandra`` is the
    namespace of tables. Raises `EtlError` if the target is not valid, or the client is not installed.
    """

    def __init__(self, target: str | None, *, name: str, flow: Callable[[Any], Flow], cassandra: str) -> None:
        self._client = None if target is None else _client(target)
        self._name, self._flow, self._cassandra, self._run = name, flow, cassandra, str(uuid4())

    def __enter__(self) -> Self:
        self._emit("START", None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._emit("FAIL" if isinstance(error, Exception) else "ABORT", None, message=one_line(error)[:_LETTERS])
        if self._client is not None:
            self._client.close(_SECONDS)

    def complete(self, report: Any) -> None:
        """Send COMPLETE, with what the job has written."""
        self._emit("COMPLETE", report)

    def _emit(self, state: str, report: Any, *, message: str | None = None) -> None:
        if self._client is None:
            return
        try:
            self._client.emit(self._event(state, report, message=message))
        except Exception as error:  # of any transport
            log.warning("warning: no OpenLineage event %s was sent. Found: %s", state, one_line(error))

    def _event(self, state: str, report: Any, *, message: str | None) -> Any:
        from openlineage.client import event_v2 as ol
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        flow = self._flow(report)
        kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="IMAGESTRATA", jobType="JOB")
        failure: dict[str, Any] = {}
        if message is not None:
            failure["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, programmingLanguage="Python")
        return ol.RunEvent(
            eventType=ol.RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=ol.Run(runId=self._run, facets=failure),
            job=ol.Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or "imagestrata",
                name=self._name,
                facets={"jobType": kind},
            ),
            inputs=[ol.InputDataset(**self._named(one)) for one in flow.inputs],
            outputs=[ol.OutputDataset(**self._named(one), outputFacets=_statistics(one)) for one in flow.outputs],
            producer=_PRODUCER,
        )

    def _named(self, dataset: Dataset) -> dict[str, Any]:
        from openlineage.client.facet_v2 import dataset_version_dataset

        found: dict[str, Any] = {}
        if dataset.version is not None:
            found["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=dataset.version)
        namespace, name = _named_place(dataset.place, cassandra=self._cassandra)
        return {"namespace": namespace, "name": name, "facets": found}


def _named_place(place: TableName | str, *, cassandra: str) -> tuple[str, str]:
    """The namespace and the name of a dataset, as OpenLineage's naming rules say."""
    if isinstance(place, TableName):
        return cassandra, str(place)
    parts = urlsplit(place)
    if len(parts.scheme) > 1 and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
    return "file", os.path.abspath(parts.path if parts.scheme == "file" else place)


def _statistics(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    if dataset.rows is None:
        return {}
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=dataset.rows, size=dataset.bytes, fileCount=dataset.files
    )
    return {"outputStatistics": facet}


def _client(target: str) -> Any:
    """A client of OpenLineage. Raises `EtlError`."""
    kind, colon, rest = target.partition(":")
    config: dict[str, Any] | None
    if target == "client":  # as openlineage.yml or OPENLINEAGE_* say
        config = None
    elif target == "console":
        config = {"type": "console"}
    elif kind == "file" and rest:
        config = {"type": "file", "log_file_path": os.path.abspath(urlsplit(target).path or rest), "append": True}
    elif kind in ("http", "https") and (parts := urlsplit(target)).netloc and parts.username is None:
        config = {"type": "http", "url": f"{kind}://{parts.netloc}", "timeout": _SECONDS, "retry": {"total": 1}}
        if parts.path.strip("/"):
            config["endpoint"] = parts.path.strip("/")
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            config["auth"] = {"type": "api_key", "apiKey": key}
    else:
        shown = f"{kind}:..." if colon else target  # an address may have a password
        raise EtlError(f"{_WANTED} in {SETTING}. Found: {shown}. Keys go into OPENLINEAGE_API_KEY.")
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import set_producer
        from openlineage.client.transport import get_default_factory
    except ModuleNotFoundError as error:
        raise EtlError(
            f"Wanted the library {error.name} for {SETTING}. Found: it is not installed. "
            "Run: pip install 'imagestrata[lineage]'"
        ) from None
    set_producer(_PRODUCER)
    try:
        return OpenLineageClient(transport=None if config is None else get_default_factory().create(config))
    except Exception as error:  # of any transport
        raise EtlError(f"{_WANTED} in {SETTING}. Found: {target}, which cannot be used ({one_line(error)}).") from None
