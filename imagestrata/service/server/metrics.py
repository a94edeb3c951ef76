"""Metrics of the service for Prometheus."""

from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "imagestrata_requests_total", "Requests.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "imagestrata_request_seconds",
            "Duration of requests, including their bodies.",
            ["method", "route"],
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600),
            registry=self._registry,
        )
        self.sent = Counter("imagestrata_sent_bytes_total", "Bytes of responses.", registry=self._registry)
        self.received = Counter("imagestrata_received_bytes_total", "Bytes of request bodies.", registry=self._registry)
        self.used = Gauge("imagestrata_used_bytes", "Bytes of all versions.", registry=self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. Unknown methods share one label, so that they cannot fill the memory."""
        method = method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "other"
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
