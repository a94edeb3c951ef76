"""What all sources do: the batches of a plan, epoch after epoch, which an engine reads ahead of their use."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from loader.batch import Batch, Skipped
from loader.delivery import Delivery
from loader.errors import DeliveryError, OptionError
from loader.options import check_bools, check_int, check_seconds
from loader.order.permutation import LastBatchPolicy
from loader.order.plan import Plan
from loader.prefetch.ahead import Ahead
from loader.prefetch.missing import check_missing
from loader.prefetch.protocols import Engine, Taken
from loader.prefetch.stats import Stats
from loader.ranks import check_detected, ranks
from loader.splits import Split


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every source has, checked; see `Source`."""

    batch_size: int
    rank: int
    world_size: int
    seed: int
    shuffle: bool
    last_batch_policy: LastBatchPolicy
    memory_budget: int
    timeout: float
    max_in_flight: int

    @classmethod
    def checked(cls, *, rank: int | None, world_size: int | None, shuffle: bool, **given: Any) -> Self:
        """The options as callers give them, with ranks detected unless both are given. Raises `OptionError`."""
        check_bools(shuffle=shuffle)
        rank, world_size = ranks(rank, world_size)
        checked = {
            "batch_size": check_int("batch_size", given["batch_size"]),
            "seed": check_int("seed", given["seed"]),
            "memory_budget": check_int("memory_budget", given["memory_budget"], 1),
            "timeout": check_seconds("timeout", given["timeout"]),
            "max_in_flight": check_int("max_in_flight", given["max_in_flight"], 1),
        }
        return cls(rank=rank, world_size=world_size, shuffle=shuffle, **(given | checked))

    def of_the_order(self) -> dict[str, Any]:
        """Those that say which sample comes when."""
        names = ("batch_size", "rank", "world_size", "seed", "shuffle", "last_batch_policy")
        return {name: getattr(self, name) for name in names}


class Source:
    """Batches of a split on one rank, read ahead of their use: `CassandraSource`, `FolderSource`, `ShardSource`.

    An epoch's global order is a function of (split fingerprint, ``seed``, epoch) alone; with ``shuffle=False`` it is
    the split's own. Ranks take interleaved batches from it, so that all ranks of a job need the same ``batch_size``,
    ``world_size``, ``seed`` and policy. ``rank`` and ``world_size`` are detected unless both are given: from
    torch.distributed if it is initialised, else ``RANK`` and ``WORLD_SIZE``, else Slurm's step of several tasks, else
    0 of 1. A process that reads everything alone among several says ``rank=0, world_size=1``. ::

        order    0 1 2  3 4 5 | 6 7 8 9 10 11 | 12 13 14 15      16 samples, batch_size=3, world_size=2
        rank 0   0 1 2        | 6 7 8         | 12 13            PARTIAL; 12 13 13 if FILL, nothing if DROP
        rank 1          3 4 5 |       9 10 11 |       14 15      PARTIAL; 14 15 15 if FILL, nothing if DROP

    PARTIAL delivers every sample of the split exactly once an epoch, over all ranks; FILL repeats a rank's last sample
    until its batch is whole, as DALI does; DROP leaves out the last global batch if it is partial. With FILL and DROP
    all ranks have the same number of whole batches.

    Batches come in this order. With ``in_order=False`` they are made of the samples that have arrived: none
    overtakes one of a later batch of its rank by 4,096 or more, nor the end of an epoch.

    ``memory_budget`` bounds, in bytes, what is read ahead: what is here and not taken, and what is in flight. Reads in
    flight follow the times and the rate that are measured; ``max_in_flight`` is for those who insist. The next epoch's
    first batches are read while the last of one are taken; a source that was asked for another epoch than the next
    stops guessing.

    A read that fails is tried again, and one that takes too long is sent a second time, until ``timeout`` seconds have
    passed since its first. An image that is not there, or has 0 bytes, ends the epoch with an error, or with
    ``on_missing="skip"`` is left out and noted in `skipped`: then PARTIAL's batch is smaller, or left out if nothing is
    left of it, and FILL and DROP repeat the last sample. An epoch of which more than ``max_missing``, a share from 0 to
    1, is missing fails with `MissingImageError` as soon as that is certain; where ranks or workers each see a part, one
    fails whose part has more of them than chance explains.

    Reading begins at the first use, and is ended by `close`, by the end of a ``with`` block or of the process. Raises
    `OptionError` for an option out of its range; reading raises `MissingImageError` and, after `close`, `ClosedError`.

    A source pickles as its options, secrets among them, its split and the loaded state: it begins anew where it is
    unpickled.
    """

    def __init__(
        self,
        split: Split,
        plan: Plan,
        engine: Engine,
        batch_of: Callable[..., Batch],
        *,
        options: Options,
        has_detected_ranks: bool,
        remake: Callable[..., Self],
        metadata: tuple[str, ...] = (),
        in_order: bool = True,
        max_missing: float = 0.0,
        where: str = "",
    ) -> None:
        """Sources are put together in `loader.sources`.

        Args:
            split: What is read.
            plan: Which sample when.
            engine: How bytes come. It must not hold the source, which is to be free to go.
            batch_of: Makes a `Batch` of what the engine's streams give, and the epoch.
            options: As given by the caller.
            has_detected_ranks: Whether the ranks in ``options`` are not the caller's.
            remake: Makes the same source again, but for the options that it is called with.
            metadata: The columns that batches have.
            in_order: Whether batches come in the order of the plan.
            max_missing: The share of an epoch that may be missing.
            where: What `repr` tells of the store.
        """
        self.split, self.plan, self.options = split, plan, options
        self.metadata, self.in_order = metadata, in_order
        self.delivery = Delivery(in_order=in_order)
        """What was delivered, which `state_dict` tells."""
        self.skipped: list[Skipped] = []
        self._engine, self._batch_of, self._remake = engine, batch_of, remake
        self._max_missing, self._where = max_missing, where
        self._has_detected_ranks = has_detected_ranks
        self._ahead = Ahead()
        # Runs when the source is forgotten, and at the end of the process at the latest.
        self._closing = weakref.finalize(self, engine.close)

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_ranks()  # a spawned worker has no torch.distributed to compare with
        state = None if self.plan.loaded is None else self.plan.loaded.to_dict()
        return _again, (self._remake, {}, state, self._has_detected_ranks)

    def again(self, **changes: Any) -> Self:
        """A source that has not begun, with the same options but for the changes, and the state that is loaded now."""
        _, (remake, _, *more) = self.__reduce__()
        made: Self = _again(remake, changes, *more)
        return made

    def __repr__(self) -> str:
        told = self.options
        return (
            f"{type(self).__name__}({self.split!r}, {self._where}"
            f"batch_size={told.batch_size}, rank={told.rank}, world_size={told.world_size}, "
            f"seed={told.seed}, shuffle={told.shuffle}, last_batch_policy={told.last_batch_policy!r}, "
            f"in_order={self.in_order})"
        )

    def __len__(self) -> int:
        """The batches of a whole epoch on this rank; the last may be smaller."""
        return self.plan.whole.steps

    @property
    def batch_size(self) -> int:
        """The samples of a whole batch."""
        return self.options.batch_size

    @property
    def rank(self) -> int:
        """Which share of each global batch this source delivers, from 0."""
        return self.options.rank

    @property
    def world_size(self) -> int:
        """Into how many shares each global batch is dealt."""
        return self.options.world_size

    @property
    def timeout(self) -> float:
        """The seconds after which a read is given up."""
        return self.options.timeout

    @property
    def last_batch_policy(self) -> LastBatchPolicy:
        """How an epoch ends."""
        return self.options.last_batch_policy

    @property
    def seed(self) -> int:
        """What the order of epochs follows from, beside the split."""
        return self.options.seed

    @property
    def label_type(self) -> str:
        """What the labels are: "int", "blob", "multi" or "none"; see `Split`."""
        return self.split.label_type

    @property
    def first_epoch(self) -> int:
        """The epoch to begin with: the one that the loaded state stands in, or 0."""
        return self.plan.first_epoch

    @property
    def samples(self) -> int:
        """The samples of a whole epoch on this rank; those that FILL repeats count."""
        return self.plan.whole.samples

    def connect(self) -> None:
        """Be ready to read now, rather than at the first use; errors of access and tables come to light here."""
        self._engine.connect()

    def epoch(self, epoch: int, /) -> Iterator[Batch]:
        """The batches of one epoch, the same at every call; they are fetched ahead from the first ``next`` on.

        Of the epoch that a loaded state stands in, those that are left. `state_dict` counts what is taken from here.
        An iterator that is left early gives up its reads when it is closed or forgotten. Epochs may be read side by
        side, each within a memory budget of its own.
        """
        return self._counted(check_int("epoch", epoch, 0))

    def batches(self, epoch: int, /, *, offset: int = 0, every: int = 1) -> Iterator[Batch]:
        """As `epoch`, for those who read ahead: `state_dict` does not count these batches; see `note`.

        Of the batches that the epoch has left, ``every`` so many-th from number ``offset`` on: several processes share
        them so. Then the next epoch is not read ahead.
        """
        check_int("epoch", epoch, 0)
        check_int("offset", offset, 0)
        check_int("every", every, 1)
        self._check_ranks()
        plan, options = self.plan, self.options
        is_whole = (offset, every) == (0, 1)
        stream = self._ahead.take(plan, epoch) if is_whole else None
        if stream is None:
            is_followed = is_whole and self._ahead.is_useful  # not once another epoch than the next was asked for
            stream = self._engine.stream(_epochs(plan, epoch, is_followed, offset, every))
        meter = self._engine.meter
        wanted = plan.samples(epoch, offset=offset, every=every)
        is_part = wanted + options.batch_size * options.world_size <= plan.rows  # not for DROP alone
        delivered, is_kept = 0, False
        missing: list[tuple[bytes, str]] = []
        late: tuple[int, ...] = ()
        try:
            while (filled := stream.take()) is not None:
                batch = self._batch(filled, epoch)
                delivered, late = delivered + len(batch), filled.late
                if filled.skipped:
                    missing += [(sample.id, str(sample.error)) for sample in filled.skipped]
                    check_missing(missing, self._max_missing, samples=wanted, is_part=is_part, epoch=epoch)
                meter.images += len(batch) - filled.repeats
                meter.bytes += sum(map(len, batch.images[: len(batch) - filled.repeats]))
                if len(batch):  # all of it may have been skipped
                    yield batch
            if is_whole and self._ahead.is_useful and plan.whole.samples:
                self._ahead.keep(plan, epoch + 1, stream)
                is_kept = True
        finally:
            if not is_kept:
                stream.close()
        wanted -= len(missing) if options.last_batch_policy == "PARTIAL" else 0
        if delivered != wanted or late:
            raise DeliveryError(f"Wanted {wanted} samples in epoch {epoch} on rank {self.rank}. Found: {delivered}")

    def note(self, epoch: int, steps: int | None = None, /) -> None:
        """Take down for `state_dict` that the batches of an epoch up to number ``steps`` - 1 were given away.

        None: what this epoch began with.
        """
        self.delivery.note(epoch, steps)

    def skip(self, sample: Skipped, /) -> None:
        """Take down in `skipped` a sample that is done without."""
        self.skipped.append(sample)
        self._engine.meter.skipped += 1

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0 but for the epoch that a loaded state stands in."""
        return self.plan.first_step(epoch)

    def state_dict(self, *, epoch: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """Where delivery stands, exact to the sample: dictionaries, lists, texts and numbers.

        By default behind the batch that `epoch` or an iterator of this package gave last. A pipeline of your own reads
        ahead, so that only you know: give the ``epoch``, and the ``steps`` that have left it, counted from its batch 0.
        In order, the states of all ranks at one step are equal, and any number of ranks can go on from there. Out of
        order, a rank knows of its own samples only: `merge_states` makes the state of all. Raises `OptionError` for
        more batches than the epoch has, and where nobody knows.
        """
        if (epoch is None) != (steps is None):
            raise OptionError("Wanted epoch and steps, or neither. Found: one of them")
        if epoch is not None and steps is not None:
            epoch, steps = check_int("epoch", epoch, 0), check_int("steps", steps, 0)
        return self.delivery.state(self.plan, epoch, steps).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from a state: its epoch, `first_epoch`, has from now on what was left of it, the others are whole.

        Batch size and number of ranks may be others than before. Raises `StateError` for a state of another split, seed
        or order.
        """
        self.plan = self.plan.going_on(state)
        self.delivery.begin(self.first_epoch)
        self._ahead.drop()

    def read(self) -> tuple[Any, ...]:
        """Images, labels and metadata as outputs of the DALI pipeline that is being defined.

        Images are uint8 samples of shape ``(bytes,)``, not decoded; class numbers are int32 samples of shape ``(1,)``,
        as DALI's readers give them, masks and arrays uint8 samples as images are; a split without labels has no such
        output. Then come the ``metadata`` columns in their order: whole numbers as int64 and others as float64 samples
        of shape ``(1,)``, texts in UTF-8 and blobs as uint8 samples. ``StopIteration`` ends each epoch, and the
        pipeline's ``reset()`` begins the next one, from `first_epoch` on. Each pipeline counts its own epochs. DALI
        reads ahead, so that `state_dict` must be told what has left the pipeline. Raises `MissingExtraError` without
        DALI.
        """
        from loader.dali import EpochReader

        self.delivery.leave()
        return EpochReader(self, first_epoch=self.first_epoch).outputs()

    def stats(self) -> Stats:
        """What was delivered so far, and how reading goes."""
        return self._engine.stats()

    def serve_metrics(self, *, port: int, host: str = "127.0.0.1") -> int:
        """Answer Prometheus at ``http://host:port/metrics`` with `stats`, until the source is closed; gives the port.

        Port 0 takes a free one. Nobody is asked who he is: open it to hosts that you trust. Raises `OptionError` for an
        address that cannot be had, and `MissingExtraError` without prometheus-client.
        """
        from loader.prefetch.metrics import MetricsServer

        table = self.split.data_table or self.split.address
        labels = {"table": table, "split": str(self.split.index), "rank": str(self.rank)}
        server = MetricsServer(self._engine.stats, labels, host=host, port=check_int("port", port, 0, 65535))
        self._engine.at_close(server.close)
        return server.port

    def close(self) -> None:
        """Give up all reads, what was read ahead and connections, within about two seconds. Safe to call twice."""
        self._ahead.drop()
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_ranks(self) -> None:
        if self._has_detected_ranks:
            check_detected(self.rank, self.world_size)

    def _counted(self, epoch: int) -> Iterator[Batch]:
        for batch in self.batches(epoch):
            self.note(epoch, batch.step + 1)
            yield batch
        self.note(epoch + 1)  # also on a rank that had a step fewer than others

    def _batch(self, filled: Taken, epoch: int) -> Batch:
        for sample in filled.skipped:
            self.skip(Skipped(UUID(bytes=sample.id), sample.position, epoch, str(sample.error)))
        self.delivery.mark(epoch, filled.number, end=filled.end, late=filled.late)
        return self._batch_of(filled, epoch)


def check_source(source: Source) -> None:
    """Raises `OptionError` for anything else."""
    if not isinstance(source, Source):
        raise OptionError(f"Wanted a source, as loader.CassandraSource. Found: {source!r}")


def _epochs(plan: Plan, epoch: int, is_followed: bool, offset: int, every: int) -> Iterator[Iterator[Any]]:
    """The epochs to be read, one after another. It must not hold the source, which ends its reads when forgotten."""
    while True:
        yield plan.steps(epoch, offset=offset, every=every)
        if not is_followed or not plan.whole.samples:
            return
        epoch += 1


def _again(
    remake: Callable[..., Source], changes: Mapping[str, Any], state: Mapping[str, Any] | None, is_detected: bool
) -> Any:
    source = remake(**changes)
    source._has_detected_ranks = is_detected
    if state is not None:
        source.load_state_dict(state)
    return source
