"""A source's numbers for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from formats.metrics import LIBRARY, MetricsServer, metric
from loader.errors import OptionError, require
from loader.prefetch.stats import Stats

if TYPE_CHECKING:
    from prometheus_client import Metric

_PREFIX = "imagestrata_loader_"
# By field of `Stats`.
_NUMBERS = {
    "images": ("images_total", "Images delivered."),
    "bytes": ("bytes_total", "Bytes of the images delivered."),
    "retries": ("retries_total", "Reads repeated after an error."),
    "second_reads": ("second_reads_total", "Reads sent again because the answer was late."),
    "rereads": ("rereads_total", "Pieces of shards read again because the memory budget did not hold them."),
    "skipped": ("skipped_samples_total", "Samples that were left out."),
    "seconds": ("seconds_total", "Seconds since the first request."),
    "in_flight": ("in_flight_reads", "Reads that wait for an answer."),
    "window": ("window_reads", "Reads that may wait for an answer."),
    "held_bytes": ("held_bytes", "Bytes that were read and not delivered."),
    "round_trip": ("round_trip_seconds", "The shortest recent answer; absent before the first one."),
    "connections": ("connections", "Open connections, over all nodes."),
}
_QUANTILES = {"0.5": "p50", "0.99": "p99"}


class SourceMetrics:
    """The metrics of a source, from its `Stats` as they are now."""

    def __init__(self, stats: Callable[[], Stats], labels: Mapping[str, str]) -> None:
        self._stats, self._labels = stats, labels
        self._stalled = 0.0

    def collect(self) -> Iterator["Metric"]:
        """The metrics. Safe for threads."""
        stats = self._stats()
        for field, (name, text) in _NUMBERS.items():
            if (value := getattr(stats, field)) is not None:
                yield metric(f"{_PREFIX}{name}", text, [(self._labels, value)])
        # A product of rounded numbers can fall by a little, which Prometheus would take for a restart.
        self._stalled = max(self._stalled, stats.stall_share * stats.seconds)
        text = "Seconds in which the consumer waited for a batch; several consumers add up."
        yield metric(f"{_PREFIX}stalled_seconds_total", text, [(self._labels, self._stalled)])
        text = "Quantiles of the last thousand answers."
        of_reads = [({**self._labels, "quantile": one}, getattr(stats, field)) for one, field in _QUANTILES.items()]
        yield metric(f"{_PREFIX}read_seconds", text, of_reads)


def serve(stats: Callable[[], Stats], labels: Mapping[str, str], *, host: str, port: int) -> MetricsServer:
    """Serve a source's metrics. Raises `OptionError` for an address that cannot be used, and `MissingExtraError`."""
    require(LIBRARY, extra="metrics", purpose="serving metrics")
    try:
        return MetricsServer(SourceMetrics(stats, labels), host=host, port=port)
    except OSError as error:
        raise OptionError(f"Wanted to serve metrics at {host} port {port}. Found: {error.strerror}") from error
