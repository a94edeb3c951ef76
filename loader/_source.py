"""The source: the batches of a split, epoch after epoch, fetched ahead from Cassandra."""

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loader._errors import DeliveryError, OptionError
from loader._fetch import AcsyllaFetcher
from loader._order import LastBatchPolicy
from loader._prefetch import Engine
from loader._schedule import Schedule, Step
from loader._splits import Split
from schemas import TableName

_HOST = re.compile(r"[^,\s/:]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")  # a name or IPv4, or an IPv6


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One rank's samples of one step, in the order of the epoch.

    ``images``: the ``b`` files' bytes, as they were ingested; ``labels``: int32 ``(b,)``; ``ids``: uint8 ``(b, 16)``,
    big-endian UUIDs; ``positions``: int64 ``(b,)``, where the samples stand in the split. ``step`` counts the epoch's
    batches from 0, the same on all ranks. The last ``repeats`` samples repeat the one before them, so that FILL's last
    batch is whole.
    """

    images: list[bytes] = field(repr=False)
    labels: NDArray[np.int32] = field(repr=False)
    ids: NDArray[np.uint8] = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    epoch: int
    step: int
    repeats: int = 0

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True)
class _Request:
    step: Step
    all_ids: NDArray[np.uint8]

    @property
    def ids(self) -> NDArray[np.uint8]:
        """What is read: a sample that is repeated once only."""
        return self.all_ids[: max(1, len(self.all_ids) - self.step.repeats)]


class CassandraSource:
    """Batches of a split on one rank, read from Cassandra ahead of their use.

    An epoch's global order is a function of (split fingerprint, ``seed``, epoch) alone; with ``shuffle=False`` it is
    the split's own. Ranks take interleaved batches from it, so that all ranks of a job need the same ``batch_size``,
    ``world_size``, ``seed`` and policy::

        order    0 1 2  3 4 5 | 6 7 8 9 10 11 | 12 13 14 15      16 samples, batch_size=3, world_size=2
        rank 0   0 1 2        | 6 7 8         | 12 13            PARTIAL; 12 13 13 if FILL, nothing if DROP
        rank 1          3 4 5 |       9 10 11 |       14 15      PARTIAL; 14 15 15 if FILL, nothing if DROP

    PARTIAL delivers every sample of the split exactly once an epoch, over all ranks; FILL repeats a rank's last sample
    until its batch is whole, as DALI does; DROP leaves out the last global batch if it is partial. With FILL and DROP
    all ranks have the same number of whole batches.

    ``prefetch`` is the number of batches held in memory or in flight. Connections are made at the first use and closed
    by `close`, by the end of a ``with`` block or of the process. ``hosts`` are contact points, one name or address as a
    string or several in a list; ``datacenter`` is the one to read from, by default the one of the first contact point
    that answers. Labels that the split does not know are read with the images.

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
        self.prefetch = _check_int("prefetch", prefetch, 1)
        self._schedule = Schedule(
            fingerprint=split.fingerprint,
            rows=len(split),
            seed=_check_int("seed", seed),
            shuffle=shuffle,
            batch_size=_check_int("batch_size", batch_size),
            rank=_check_int("rank", rank),
            world_size=_check_int("world_size", world_size),
            last_batch_policy=last_batch_policy,
        )
        self._delivered: tuple[int, int | None] | None = (0, None)
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
        plan = self._schedule
        return (
            f"CassandraSource({self.split!r}, hosts={list(self.hosts)}, port={self.port}, "
            f"batch_size={plan.batch_size}, rank={plan.rank}, world_size={plan.world_size}, "
            f"seed={plan.seed}, shuffle={plan.shuffle}, last_batch_policy={plan.last_batch_policy!r}, "
            f"prefetch={self.prefetch})"
        )

    def __len__(self) -> int:
        """The batches of a whole epoch on this rank; the last may be smaller."""
        return self._schedule.whole.steps

    @property
    def batch_size(self) -> int:
        """The samples of a whole batch."""
        return self._schedule.batch_size

    @property
    def rank(self) -> int:
        """Which share of each global batch this source delivers, from 0."""
        return self._schedule.rank

    @property
    def world_size(self) -> int:
        """Into how many shares each global batch is dealt."""
        return self._schedule.world_size

    @property
    def seed(self) -> int:
        """What the order of epochs follows from, beside the split."""
        return self._schedule.seed

    @property
    def first_epoch(self) -> int:
        """The epoch to begin with: the one that the loaded state stands in, or 0."""
        return self._schedule.first_epoch

    @property
    def samples(self) -> int:
        """The samples of a whole epoch on this rank; those that FILL repeats count."""
        return self._schedule.whole.samples

    def epoch(self, epoch: int, /) -> Iterator[Batch]:
        """The batches of one epoch, the same at every call; they are fetched ahead from the first ``next`` on.

        Of the epoch that a loaded state stands in, those that are left. `state_dict` counts what is taken from here.
        An iterator that is left early gives up its reads when it is closed or forgotten. Epochs may be read side by
        side, each with its own ``prefetch``.
        """
        return self._counted(_check_int("epoch", epoch, 0))

    def batches(self, epoch: int, /) -> Iterator[Batch]:
        """As `epoch`, for those who read ahead: `state_dict` does not count these batches; see `note`."""
        schedule = self._schedule
        stream = self._engine.stream(self._requests(schedule, epoch), depth=self.prefetch)
        known = self.split.labels
        wanted, delivered = schedule.samples(epoch), 0
        try:
            for request, (images, labels) in stream:
                step, again = request.step, len(request.all_ids) - len(images)
                images += images[-1:] * again
                labels = np.append(labels, np.repeat(labels[-1:], again)) if known is None else known[step.positions]
                delivered += len(images)
                yield Batch(images, labels, request.all_ids, step.positions, epoch, step.number, step.repeats)
        finally:
            stream.close()
        if delivered != wanted:
            raise DeliveryError(f"Wanted {wanted} samples in epoch {epoch} on rank {self.rank}. Found: {delivered}")

    def note(self, epoch: int, steps: int | None = None, /) -> None:
        """Take down for `state_dict` that the batches of an epoch before number ``steps`` were given away.

        None: what this epoch began with.
        """
        self._delivered = epoch, steps

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0 but for the epoch that a loaded state stands in."""
        return self._schedule.first_step(epoch)

    def state_dict(self, *, epoch: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """Where delivery stands, exact to the sample: dictionaries, lists, texts and numbers.

        By default behind the batch that `epoch` or an iterator of this package gave last. A pipeline of your own reads
        ahead, so that only you know: give the ``epoch``, and the ``steps`` that have left it, counted from its batch 0.
        The states of all ranks at one step are equal, and any number of ranks can go on from there. Raises
        `OptionError` for more batches than the epoch has, and where nobody knows.
        """
        if (epoch is None) != (steps is None):
            raise OptionError("Wanted epoch and steps, or neither. Found: one of them")
        if epoch is None:
            if self._delivered is None:
                raise OptionError(
                    "Wanted epoch and steps, which say what has left your pipeline. Found: neither; DALI reads ahead."
                )
            epoch, steps = self._delivered
        return self._schedule.after(epoch, steps=steps).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from a state: its epoch, `first_epoch`, has from now on what was left of it, the others are whole.

        Batch size and number of ranks may be others than before. Raises `StateError` for a state of another split, seed
        or order.
        """
        self._schedule = self._schedule.going_on(state)
        if self._delivered is not None:  # else a pipeline reads ahead, before as after
            self.note(self.first_epoch)

    def read(self) -> tuple[Any, Any]:
        """Images and labels as outputs of the DALI pipeline that is being defined.

        Images are uint8 samples of shape ``(bytes,)``, not decoded; labels are int32 samples of shape ``(1,)``, as
        DALI's readers give them. ``StopIteration`` ends each epoch, and the pipeline's ``reset()`` begins the next
        one, from `first_epoch` on. Each pipeline counts its own epochs. DALI reads ahead, so that `state_dict` must be
        told what has left the pipeline. Raises `MissingExtraError` without DALI.
        """
        from loader._dali import EpochReader

        self._delivered = None
        return EpochReader(self, first_epoch=self.first_epoch).outputs()

    def close(self) -> None:
        """Give up all reads and connections, within about two seconds. Safe to call twice."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _counted(self, epoch: int) -> Iterator[Batch]:
        for batch in self.batches(epoch):
            self.note(epoch, batch.step + 1)
            yield batch
        self.note(epoch + 1)  # also on a rank that had a step fewer than others

    def _requests(self, schedule: Schedule, epoch: int) -> Iterator[_Request]:
        for step in schedule.steps(epoch):
            yield _Request(step, np.asarray(self.split.ids[step.positions]))


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
