"""A source's numbers for Prometheus."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loader.errors import OptionError, require
from loader.prefetch.stats import Stats

_COUNTERS = {
    "images": "Images delivered.",
    "bytes": "Bytes of the images delivered.",
    "retries": "Reads repeated after an error.",
    "second_reads": "Reads sent again because the answer was late.",
    "rereads": "Pieces of shards read again because the memory budget did not hold them.",
    "skipped": "Samples that were left out.",
}
_GAUGES = {
    "seconds": "Seconds since the first request.",
    "stall_share": "Share of these seconds in which the consumer waited for a batch.",
    "in_flight": "Reads that wait for an answer.",
    "window": "Reads that may wait for an answer.",
    "held_bytes": "Bytes that were read and not delivered.",
    "round_trip": "The shortest recent answer, in seconds.",
    "p50": "Median of the last thousand answers, in seconds.",
    "p99": "99th percentile of the last thousand answers, in seconds.",
    "connections": "Open connections, over all nodes.",
}


class MetricsServer:
    """Serves ``http://host:port/metrics`` in its own thread until `close`."""

    def __init__(self, stats: Callable[[], Stats], labels: Mapping[str, str], *, host: str, port: int) -> None:
        """``port`` 0 takes a free one. Raises `OptionError` for an address that cannot be used."""
        client = require("prometheus_client", extra="metrics", purpose="serving metrics")
        registry = client.CollectorRegistry()
        registry.register(_Collector(stats, labels))
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise OptionError(f"Wanted to serve metrics at {host} port {port}. Found: {error.strerror}") from error
        self.port: int = self._server.server_port
        self._process = os.getpid()

    def close(self) -> None:
        """Stop serving. You may call it twice, and in a forked child, which does not have the thread."""
        if self._process != os.getpid():
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, stats: Callable[[], Stats], labels: Mapping[str, str]) -> None:
        self._stats, self._labels = stats, dict(labels)
        self._core = require("prometheus_client.core", extra="metrics", purpose="serving metrics")

    def collect(self) -> Iterator[Any]:
        """The numbers as they are now."""
        found = dataclasses.asdict(self._stats())
        kinds = (self._core.CounterMetricFamily, _COUNTERS), (self._core.GaugeMetricFamily, _GAUGES)
        for family, described in kinds:
            for name, text in described.items():
                if found[name] is not None:
                    metric = family(f"imagestrata_loader_{name}", text, labels=list(self._labels))
                    metric.add_metric(list(self._labels.values()), found[name])
                    yield metric
