"""What loader, jobs and service export to Prometheus, from the code that serves it."""

import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from formats.metrics import Metrics
from imagestrata.service.server.metrics import Metrics as ServiceMetrics
from imagestrata.service.stores.room import Room
from jobs.metrics import JobMetrics
from loader.prefetch.metrics import SourceMetrics
from loader.prefetch.stats import Stats


@dataclass(frozen=True)
class Exported:
    """A metric: its type, and the names of its labels."""

    type: str
    labels: frozenset[str]


def exported_metrics() -> dict[str, Exported]:
    """Every metric by its name in queries; a histogram by the name without suffix."""
    context = SimpleNamespace(_jsc=None)
    job: Any = JobMetrics(SimpleNamespace(sparkContext=context), "ingest.py")  # type: ignore[arg-type]
    job.observe(SimpleNamespace(images=1, bytes=2, rejected=3), 4)
    source = SourceMetrics(lambda: Stats(round_trip=0.1), {"table": "k.data", "split": "0", "rank": "0"})
    with tempfile.TemporaryDirectory() as folder:
        room = Room(Path(folder))
        room.quota = 1
        service = ServiceMetrics(room)
        service.count("GET", "/health", 200, 0.1)
        texts = [text_of(job), text_of(source), service.text().decode()]
    return {name: one for text in texts for name, one in metrics_in(text).items()}


def text_of(metrics: Metrics) -> str:
    """What is served of these metrics."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def metrics_in(text: str) -> dict[str, Exported]:
    """The metrics of a text that is served."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = Exported(family.type, frozenset(labels))
    return found


def samples_in(text: str) -> Mapping[tuple[str, str], float]:
    """The values in a text that is served, by name and ``state`` of each sample."""
    families = text_string_to_metric_families(text)
    return {(one.name, one.labels.get("state", "")): one.value for family in families for one in family.samples}


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
