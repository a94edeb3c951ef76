"""Metrics of the service for Prometheus."""

from collections.abc import AsyncIterator, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, disable_created_metrics, generate_latest

from formats.metrics import metric
from imagestrata.service.stores.room import Room

TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "imagestrata_service_"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series


class Metrics:
    """The metrics of one app, whose space ``room`` counts."""

    def __init__(self, room: Room) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests_total", "Requests.", "method", "route", "status")
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "Duration of requests, including their bodies.",
            ["method", "route"],
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600),
            registry=self._registry,
        )
        self.sent = self._counter("sent_bytes_total", "Bytes of responses.")
        self.received = self._counter("received_bytes_total", "Bytes of request bodies.")
        self._registry.register(_Space(room))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}{name}", text, labels, registry=self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. Unknown methods share one label, so that they cannot fill the memory."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    async def counted(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Count the bytes of a request's body while it is read."""
        async for chunk in body:
            self.received.inc(len(chunk))
            yield chunk

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self._registry)


class _Space:
    def __init__(self, room: Room) -> None:
        self._room = room

    def collect(self) -> Iterator[Metric]:
        room = self._room
        numbers = {
            "used_bytes": ("Bytes of all versions.", room.used),
            "arriving_bytes": ("Bytes received that belong to no version yet.", room.arriving),
            "quota_bytes": ("Limit of --quota for both together; absent without it.", room.quota),
            "free_bytes": ("Free bytes of the disk that uploads are written to.", room.free),
        }
        for name, (text, value) in numbers.items():
            if value is not None:
                yield metric(f"{_PREFIX}{name}", text, [({}, value)])
