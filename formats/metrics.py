"""Metrics for Prometheus, in one namespace.

Names begin with ``imagestrata_job_``, ``imagestrata_loader_`` or ``imagestrata_service_`` and have their unit at the
end. Those with ``_total`` after it are counters, which only grow. This module imports prometheus_client on first use.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from prometheus_client import Metric

LIBRARY = "prometheus_client"
HOST = "127.0.0.1"  # requests are not authenticated


class Metrics(Protocol):
    """What a process tells."""

    def collect(self) -> Iterator["Metric"]:
        """The metrics as they are now; called in a thread for each request."""


def metric(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> "Metric":
    """A metric with its samples, each with its labels. All samples have the same labels, with other values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    given = [(dict(labels), value) for labels, value in samples]
    kind: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    made: Metric = kind(name, text, labels=list(given[0][0]) if given else ())
    for labels, value in given:
        made.add_sample(name, labels, value)
    return made


class MetricsServer:
    """Serves ``http://host:port/metrics`` in its own thread until `close`."""

    def __init__(self, metrics: Metrics, *, host: str, port: int) -> None:
        """``port`` 0 takes a free one. Raises OSError for an address that cannot be used."""
        import prometheus_client

        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics)
        self._server, self._thread = prometheus_client.start_http_server(port, addr=host, registry=registry)
        self.port: int = self._server.server_port
        self._process = os.getpid()

    def close(self) -> None:
        """Stop serving. You may call it twice, and in a forked child, which does not have the thread."""
        if self._process != os.getpid():
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
