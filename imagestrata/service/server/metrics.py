"""What the service counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counts of one app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "imagestrata_requests_total", "Requests.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "imagestrata_request_seconds",
            "How long requests took, their bodies included.",
            ["method", "route"],
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600),
            registry=self._registry,
        )
        self.sent = Counter("imagestrata_sent_bytes_total", "Bytes of answers.", registry=self._registry)
        self.received = Counter("imagestrata_received_bytes_total", "Bytes of bodies.", registry=self._registry)
        self.used = Gauge("imagestrata_used_bytes", "Bytes of all versions.", registry=self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; methods that are none of ours together, so that nobody can fill the memory with them."""
        method = method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """All of them, in the text form."""
        return generate_latest(self._registry)
