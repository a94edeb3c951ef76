"""The source: the batches of a split, epoch after epoch, fetched ahead from Cassandra."""

import re
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loader._errors import DeliveryError, OptionError
from loader._fetch import AcsyllaFetcher
from loader._order import LastBatchPolicy, Sharding, epoch_order
from loader._prefetch import Engine
from loader._splits import Split
from schemas import TableName

_HOST = re.compile(r"[^,\s/:]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")  # a name or IPv4, or an IPv6


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One rank's samples of one step, in the order of the epoch.

    ``images``: the ``b`` files' bytes, as they were ingested; ``labels``: int32 ``(b,)``; ``ids``: uint8 ``(b, 16)``,
    big-endian UUIDs; ``positions``: int64 ``(b,)``, where the samples stand in the split. ``step`` counts the epoch's
    batches from 0, the same on all ranks.
    """

    images: list[bytes] = field(repr=False)
    labels: NDArray[np.int32] = field(repr=False)
    ids: NDArray[np.uint8] = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    epoch: int
    step: int

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True)
class _Request:
    step: int
    positions: NDArray[np.int64]
    ids: NDArray[np.uint8]


class CassandraSource:
    """Batches of a split on one rank, read from Cassandra ahead of their use.

    An epoch's global order is a function of (split fingerprint, ``seed``, epoch) alone; with ``shuffle=False`` it is
    the split's own. Ranks take interleaved batches from it, so that all ranks of a job need the same ``batch_size``,
    ``world_size``, ``seed`` and policy::

        order    0 1 2  3 4 5 | 6 7 8 9 10 11 | 12 13 14 15      16 samples, batch_size=3, world_size=2
        rank 0   0 1 2        | 6 7 8         | 12 13            PARTIAL; nothing if DROP
        rank 1          3 4 5 |       9 10 11 |       14 15      PARTIAL; nothing if DROP

    PARTIAL delivers every sample of the split exactly once an epoch, over all ranks; DROP leaves out the last global
    batch if it is partial. ``prefetch`` is the number of batches held in memory or in flight. Connections are made
    at the first use and closed by `close`, by the end of a ``with`` block or of the process. ``hosts`` are contact
    points, one name or address as a string or several in a list; ``datacenter`` is the one to read from, by default
    the one of the first contact point that answers. Labels that the split does not know are read with the images.

    Raises `OptionError` for an option out of its range. Reading raises `UnreachableError`, `AccessError`,
    `TableError`, `MissingImageError` and, after `close`, `ClosedError`.
    """

    def __init__(
        self,
        split: Split,
        *,
        hosts: str | Sequence[str],
        port: int = 9042,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        prefetch: int = 8,
        username: str | None = None,
        password: str | None = None,
        datacenter: str | None = None,
    ) -> None:
        self.split = split
        self.hosts = _check_hosts(hosts)
        self.port = _check_int("port", port, 1, 65535)
        self.seed = _check_int("seed", seed)
        self.shuffle = shuffle
        self.prefetch = _check_int("prefetch", prefetch, 1)
        self._sharding = Sharding(
            rows=len(split),
            batch_size=_check_int("batch_size", batch_size),
            rank=_check_int("rank", rank),
            world_size=_check_int("world_size", world_size),
            last_batch_policy=last_batch_policy,
        )
        if (username is None) != (password is None):
            raise OptionError("Wanted username and password, or neither. Found: one of them")

        def make_fetcher() -> AcsyllaFetcher:  # a closure, because it shows no password, and without `self`
            return AcsyllaFetcher(
                table=table,
                columns=split.columns,
                with_labels=split.labels is None,
                hosts=contact_points,
                port=port,
                username=username,
                password=password,
                datacenter=datacenter,
            )

        table, contact_points = TableName.parse(split.data_table), self.hosts
        self._engine = Engine(make_fetcher)
        # Runs when the source is forgotten, and at the end of the process at the latest.
        self._closing = weakref.finalize(self, self._engine.close)

    def __repr__(self) -> str:
        sharding = self._sharding
        return (
            f"CassandraSource({self.split!r}, hosts={list(self.hosts)}, port={self.port}, "
            f"batch_size={sharding.batch_size}, rank={sharding.rank}, world_size={sharding.world_size}, "
            f"seed={self.seed}, shuffle={self.shuffle}, last_batch_policy={sharding.last_batch_policy!r}, "
            f"prefetch={self.prefetch})"
        )

    def __len__(self) -> int:
        """The batches of one epoch on this rank; the last may be smaller."""
        return self._sharding.steps

    @property
    def batch_size(self) -> int:
        """The samples of a whole batch."""
        return self._sharding.batch_size

    @property
    def rank(self) -> int:
        """Which share of each global batch this source delivers, from 0."""
        return self._sharding.rank

    @property
    def world_size(self) -> int:
        """Into how many shares each global batch is dealt."""
        return self._sharding.world_size

    @property
    def samples(self) -> int:
        """The samples of one epoch on this rank."""
        return self._sharding.samples

    def epoch(self, epoch: int, /) -> Iterator[Batch]:
        """The batches of one epoch, the same at every call; they are fetched ahead from the first ``next`` on.

        An iterator that is left early gives up its reads when it is closed or forgotten. Epochs may be read side by
        side, each with its own ``prefetch``.
        """
        _check_int("epoch", epoch, 0)
        return self._batches(epoch)

    def read(self) -> tuple[Any, Any]:
        """Images and labels as outputs of the DALI pipeline that is being defined.

        Images are uint8 samples of shape ``(bytes,)``, not decoded; labels are int32 samples of shape ``(1,)``, as
        DALI's readers give them. ``StopIteration`` ends each epoch, and the pipeline's ``reset()`` begins the next
        one, from 0. Each pipeline counts its own epochs. Raises `MissingExtraError` without DALI.
        """
        from loader._dali import EpochReader

        return EpochReader(self).outputs()

    def close(self) -> None:
        """Give up all reads and connections, within about two seconds. Safe to call twice."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _batches(self, epoch: int, *, first_step: int = 0) -> Iterator[Batch]:
        stream = self._engine.stream(self._requests(epoch, first_step), depth=self.prefetch)
        known = self.split.labels
        wanted = self.samples - min(first_step * self.batch_size, self.samples)
        delivered = 0
        try:
            for request, (images, fetched) in stream:
                delivered += len(images)
                labels = fetched if known is None else known[request.positions]
                yield Batch(images, labels, request.ids, request.positions, epoch, request.step)
        finally:
            stream.close()
        if delivered != wanted:
            raise DeliveryError(f"Wanted {wanted} samples in epoch {epoch} on rank {self.rank}. Found: {delivered}")

    def _requests(self, epoch: int, first_step: int) -> Iterator[_Request]:
        order = epoch_order(
            len(self.split), fingerprint=self.split.fingerprint, seed=self.seed, epoch=epoch, shuffle=self.shuffle
        )
        for step in range(first_step, len(self)):
            places = self._sharding.places(step)
            positions = places if order is None else order(places)
            yield _Request(step, positions, np.asarray(self.split.ids[positions]))


def _check_hosts(hosts: str | Sequence[str]) -> tuple[str, ...]:
    names = (hosts,) if isinstance(hosts, str) else tuple(hosts)
    if not names or not all(isinstance(name, str) and _HOST.fullmatch(name) for name in names):
        raise OptionError(f"Wanted hosts as a list of names or addresses, without port. Found: {hosts!r}")
    return names


def _check_int(name: str, value: int, least: int | None = None, most: int | None = None) -> int:
    """The value itself, if it is a whole number in its range (NumPy's are welcome)."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least) or (most is not None and value > most):
        span = f" from {least} to {most}" if most is not None else f" of at least {least}" if least is not None else ""
        raise OptionError(f"Wanted {name} as a whole number{span}. Found: {value!r}")
    return int(value)
