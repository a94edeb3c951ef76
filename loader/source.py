"""Sources: the batches of a plan, epoch after epoch, which an engine reads ahead."""

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.batch import Batch, Skipped, taken
from loader.dali import EpochReader, Numbers
from loader.errors import DeletedImageError, DeliveryError, OptionError
from loader.options import check_bools, check_int, check_seconds
from loader.order.delivery import Delivered, Marks, Position, Readers, state_after
from loader.order.permutation import LastBatchPolicy
from loader.order.plan import Plan
from loader.prefetch.batcher import Filled
from loader.prefetch.engine import Engine, Stream
from loader.prefetch.metrics import serve
from loader.prefetch.missing import check_missing
from loader.prefetch.stats import Stats
from loader.ranks import check_detected, ranks
from loader.splits import Split


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every source has, checked. `Source` explains them."""

    batch_size: int
    rank: int
    world_size: int
    seed: int
    shuffle: bool
    last_batch_policy: LastBatchPolicy
    memory_budget: int
    timeout: float
    max_in_flight: int

    @property
    def global_batch(self) -> int:
        """The samples of a batch of all ranks, at least 1: the plan refuses others later."""
        return max(1, self.batch_size * self.world_size)

    @classmethod
    def checked(
        cls, *, batch_size: int, rank: int | None, world_size: int | None, seed: int, shuffle: bool,
        last_batch_policy: LastBatchPolicy, memory_budget: int, timeout: float, max_in_flight: int,
    ) -> Self:  # fmt: skip
        """Check options as callers give them, and detect ranks if none are given. The plan checks
        ``last_batch_policy``. Raises `OptionError`.
        """
        check_bools(shuffle=shuffle)
        rank, world_size = ranks(rank, world_size)
        return cls(
            batch_size=check_int("batch_size", batch_size),
            rank=rank,
            world_size=world_size,
            seed=check_int("seed", seed),
            shuffle=shuffle,
            last_batch_policy=last_batch_policy,
            memory_budget=check_int("memory_budget", memory_budget, 1),
            timeout=check_seconds("timeout", timeout),
            max_in_flight=check_int("max_in_flight", max_in_flight, 1),
        )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a source is put together from, and what follows from that."""

    plan: Plan  # which sample comes when
    engine: Engine  # how bytes are read
    batch_of: Callable[..., Batch]  # makes a batch of what the engine's streams give, and the epoch
    metadata: tuple[str, ...] = ()  # the metadata columns of the batches
    features: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # by name, the values by position
    in_order: bool = True  # whether batches come in the order of the plan
    max_missing: float = 0.0  # the share of an epoch that may be missing
    may_leave_out: bool = False  # whether missing samples are left out


class Source:
    """Batches of a split on one rank, read ahead: `CassandraSource`, `FolderSource`, `ShardSource`.

    **Order.** The global order of an epoch depends only on the split's fingerprint, ``seed`` and the epoch; with
    ``shuffle=False`` it is the order of the split. Ranks take interleaved batches from it, so all ranks of a job need
    the same ``batch_size``, ``world_size``, ``seed`` and policy::

        order    0 1 2  3 4 5 | 6 7 8  9 10 11 | 12 13 14 15      16 samples, batch_size=3, world_size=2
        rank 0   0 1 2        | 6 7 8          | 12 13            PARTIAL; 12 13 0 with FILL, nothing with DROP
        rank 1          3 4 5 |        9 10 11 |       14 15      PARTIAL; 14 15 1 with FILL, nothing with DROP

    PARTIAL delivers every sample exactly once per epoch, over all ranks: use it for evaluation. FILL repeats samples
    until the last batch of each rank is full: different ones, so that none comes three times, unless there are fewer
    than one batch of all ranks. `repeats` has their number, and so has each batch. DROP leaves out the last global
    batch if it is not full. With FILL and DROP, all ranks have the same number of full batches.

    Batches come in this order. With ``in_order=False``, a batch has the samples that have arrived. A sample never
    overtakes one of its rank that is 4,096 or more places ahead of it, and never the end of an epoch.

    **Ranks.** Unless you give both ``rank`` and ``world_size``, they come from torch.distributed if it is initialised,
    else from ``RANK`` and ``WORLD_SIZE``, else from a Slurm step of several tasks, else they are 0 and 1. If one of
    several processes reads everything alone, give it ``rank=0, world_size=1``.

    **Reading ahead.** The bytes that are read ahead or in flight stay below ``memory_budget``. The number of reads in
    flight follows from the measured times and rates. The first batches of the next epoch are read while you take the
    last ones of this epoch, until you ask for another epoch than the next one. Reading begins at the first use. It ends
    with `close`, with the end of a ``with`` block, or with the process.

    **Failures.** A failed read is repeated, and a slow one is sent a second time, until ``timeout`` seconds have passed
    since the first attempt. A missing or empty image ends the epoch with an error. With ``on_missing="skip"`` it is
    left out and recorded in `skipped`: PARTIAL then has a smaller batch, or none if nothing is left of it. FILL and
    DROP repeat samples of the batch in turn, so that all ranks keep the same number of batches; if nothing is left of
    it, the first image of the epoch that can be read. If more than ``max_missing`` of an epoch is missing,
    `MissingImageError` is raised as soon as that is certain. Where ranks, workers or a resumed epoch see a part, it
    fails if the part misses more than chance explains, or more than the whole epoch may. Images that were deleted with
    ``jobs/delete.py`` or ``ingest.py --prune`` raise `DeletedImageError`, or are left out in the same way; they do not
    count towards ``max_missing``.

    A pickled source has its options (with any passwords), its split and the loaded state. After unpickling, it starts
    from that state, or is closed if it was closed.

    Args:
        split: What is read.
        parts: What the source is put together from.
        options: The options, checked.
        has_detected_ranks: Whether the ranks in ``options`` were detected.
        remake: Makes the same source again, with the options that it is called with.
        where: What `repr` shows of the store.

    Raises:
        OptionError: An option is out of its range.
    """

    def __init__(
        self,
        split: Split,
        parts: Parts,
        options: Options,
        *,
        has_detected_ranks: bool,
        remake: Callable[..., Self],
        where: str = "",
    ) -> None:
        self.split, self.options = split, options
        self.metadata, self.features, self.in_order = parts.metadata, parts.features, parts.in_order
        self._marks = Marks()
        self._readers = Readers(parts.plan, in_order=parts.in_order, may_leave_out=parts.may_leave_out)
        self.skipped: list[Skipped] = []
        self._engine, self._batch_of, self._max_missing = parts.engine, parts.batch_of, parts.max_missing
        self._remake, self._where = remake, where
        self._has_detected_ranks = has_detected_ranks
        self._ahead = _Ahead()
        # What fills batches of which nothing is left, for one reader, plan and epoch; by whether any sample would do.
        self._fillers: dict[bool, tuple[Position, Plan, Batch]] = {}
        # Runs when the source is garbage-collected, and at the end of the process at the latest.
        self._closing = weakref.finalize(self, parts.engine.close)

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_ranks()  # a spawned worker has no torch.distributed to compare with
        state = None if self.plan.loaded is None else self.plan.loaded.to_dict()
        return _again, (self._remake, vars(self.options), state, self._has_detected_ranks, self._engine.is_closed)

    def again(self, **changes: Any) -> Self:
        """A source that has not begun, with the same options except for the changes, and with the state that is loaded
        now. That of a closed source is closed.
        """
        _, (remake, options, *more) = self.__reduce__()
        made: Self = _again(remake, options | changes, *more)
        return made

    def __repr__(self) -> str:
        options = self.options
        return (
            f"{type(self).__name__}({self.split!r}, {self._where}"
            f"batch_size={options.batch_size}, rank={options.rank}, world_size={options.world_size}, "
            f"seed={options.seed}, shuffle={options.shuffle}, last_batch_policy={options.last_batch_policy!r}, "
            f"in_order={self.in_order})"
        )

    def __len__(self) -> int:
        """The number of batches of a full epoch on this rank. The last one may be smaller."""
        return self.plan.whole.steps

    @property
    def plan(self) -> Plan:
        """Which sample comes when, for readers to come, with the loaded state."""
        return self._readers.own.plan

    @property
    def batch_size(self) -> int:
        """The number of samples in a full batch."""
        return self.options.batch_size

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self.options.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.options.world_size

    @property
    def timeout(self) -> float:
        """Seconds after which a read fails."""
        return self.options.timeout

    @property
    def last_batch_policy(self) -> LastBatchPolicy:
        """How an epoch ends."""
        return self.options.last_batch_policy

    @property
    def seed(self) -> int:
        """The seed of the order of epochs."""
        return self.options.seed

    @property
    def label_type(self) -> str:
        """The type of the labels, "int", "blob", "multi" or "none"; see `Split`."""
        return self.split.label_type

    @property
    def first_epoch(self) -> int:
        """The epoch to start with, the one of the state that the source or its iterator has loaded, or 0.

        Raises `OptionError` if several iterators have loaded different states.
        """
        return self._readers.any().plan.first_epoch

    @property
    def samples(self) -> int:
        """The number of samples of a full epoch on this rank, including those that FILL repeats."""
        return self.plan.whole.samples

    @property
    def repeats(self) -> int:
        """The number of samples that FILL repeats in a full epoch on this rank; 0 with other policies."""
        return self.plan.whole.repeats(len(self) - 1)

    def connect(self) -> None:
        """Connect now rather than at the first use. Errors of access and of tables are raised here."""
        self._engine.connect()

    def epoch(self, epoch: int, /) -> Iterator[Batch]:
        """Iterate over the batches of one epoch.

        Every call gives the same batches. In the epoch of a loaded state, only the rest of it is left. Reading starts
        with the first ``next``. `state_dict` counts the batches that you take from here. If you leave an iterator
        early, its reads end when it is closed or garbage-collected. You may read several epochs in parallel, each
        within its own memory budget.

        Args:
            epoch: The number of the epoch, from 0.

        Returns:
            An iterator over `Batch` objects.

        Raises:
            OptionError: ``epoch`` is not a whole number of at least 0.
        """
        epoch = check_int("epoch", epoch, 0)
        return _Epoch(self._counted(epoch), f"epoch {epoch} of {self!r}")

    def batches(
        self, epoch: int, /, *, offset: int = 0, every: int = 1, reader: Position | None = None
    ) -> Iterator[Batch]:
        """Iterate over batches of one epoch without counting them for `state_dict`; for code that reads ahead.

        Call `note` for the batches that you have delivered. With ``every`` above 1, several processes can share the
        batches that are left of the epoch; the next epoch is not read ahead then.

        Args:
            epoch: The number of the epoch, from 0.
            offset: The first of the remaining batches to read.
            every: Read every so-many-th batch from there.
            reader: Who reads, from `reader`; None: the source's own loop.

        Yields:
            `Batch` objects.

        Raises:
            DeliveryError: The epoch had too many or too few samples.
            StateError: A state was loaded since the first batch.
        """
        check_int("epoch", epoch, 0)
        check_int("offset", offset, 0)
        check_int("every", every, 1)
        self._check_ranks()
        reader = self._readers.own if reader is None else reader
        plan, options = reader.plan, self.options
        reader.is_part |= not (is_whole := (offset, every) == (0, 1))
        stream = self._stream(plan, epoch, offset, every)
        wanted = plan.samples(epoch, offset=offset, every=every)
        # It is a part of the epoch if it lacks more than DROP leaves out.
        rows = plan.whole.rows if wanted + options.global_batch <= plan.whole.rows else wanted
        delivered, left_out, is_kept = 0, 0, False
        missing: list[tuple[bytes, str]] = []
        late: tuple[int, ...] = ()
        self._marks.begin(epoch)
        try:
            while (filled := stream.take()) is not None:
                reader.check(plan)
                batch = self._batch(filled, epoch, reader)
                late = filled.late
                if filled.skipped:
                    left_out += len(filled.skipped)
                    missing += _missing(filled)
                    check_missing(missing, self._max_missing, samples=wanted, rows=rows, epoch=epoch)
                if not len(batch) and options.last_batch_policy != "PARTIAL":
                    batch = self._refilled(batch, filled, reader)
                delivered += len(batch)
                self._meter(batch, batch.repeats)
                if len(batch):  # all of it may have been skipped
                    yield batch
            if is_whole and self._ahead.is_useful and plan.whole.samples:
                self._ahead.keep(plan, epoch + 1, stream)
                is_kept = True
        finally:
            self._marks.end(epoch)
            if not is_kept:
                stream.close()
        if left_out == wanted > len(missing) and wanted >= plan.whole.rows:
            raise DeletedImageError(f"Wanted images of {self.split!r}. Found: all of them were deleted.")
        wanted -= left_out if options.last_batch_policy == "PARTIAL" else 0
        if delivered != wanted or late:
            raise DeliveryError(f"Wanted {wanted} samples in epoch {epoch} on rank {self.rank}. Found: {delivered}")

    def refill(
        self, batch: Batch, /, *, reader: Position, is_usable: Callable[[Batch], bool] | None = None
    ) -> Batch | None:
        """A full batch in place of one of which nothing is left. It repeats the first sample of the epoch that can be
        read and used: the same one on all ranks and after any resume; of shards, in batches of the same size.

        Args:
            batch: The batch of which nothing is left.
            reader: Who reads; it records what fills the batch.
            is_usable: Whether this batch of one sample can be used; None for any.

        Returns:
            The batch; None if the epoch has no such sample.
        """
        one = self._filler(batch.epoch, reader, is_usable)
        if one is None:
            return None
        reader.fill(batch.epoch, batch.step, int(one.positions[0]), int(one.places[0]))
        full = taken(one, [0] * self.batch_size)
        return replace(full, step=batch.step, repeats=len(full), delivered=batch.delivered)

    def _filler(self, epoch: int, reader: Position, is_usable: Callable[[Batch], bool] | None) -> Batch | None:
        """The first sample of an epoch that can be used, in a batch of its own."""
        # It is kept: otherwise each empty batch would read all missing images before the first one again.
        kept = self._fillers.get(is_usable is None)
        if kept is not None and kept[0] is reader and kept[1] is reader.plan and kept[2].epoch == epoch:
            return kept[2]
        one = next(filter(is_usable, self._one_by_one(reader.plan, epoch)), None)
        if one is not None:
            self._fillers[is_usable is None] = reader, reader.plan, one
        return one

    def _one_by_one(self, plan: Plan, epoch: int) -> Iterator[Batch]:
        """The samples of an epoch that can be read, in its order, each as a batch, whatever was delivered. As many are
        read at a time as a batch has.
        """
        for step in plan.whole_steps(epoch):
            stream = self._engine.stream(iter([iter([step])]))
            try:
                filled = stream.take()
            finally:
                stream.close()
            assert filled is not None
            batch = self._batch_of(filled, epoch)
            order = range(len(batch)) if self.in_order else np.argsort(batch.places).tolist()
            yield from (taken(batch, [number]) for number in order)

    def _refilled(self, batch: Batch, filled: Filled, reader: Position) -> Batch:
        """As `refill`; raises the error of a skipped sample if no image is left."""
        full = self.refill(batch, reader=reader)
        if full is None:
            (*_, last) = (*filled.skipped, *filled.skipped_repeats)
            assert last.error is not None
            raise last.error
        return full

    def _stream(self, plan: Plan, epoch: int, offset: int, every: int) -> Stream:
        """The stream of these batches; that of a whole epoch may have been read ahead."""
        is_whole = (offset, every) == (0, 1)
        stream = self._ahead.take(plan, epoch) if is_whole else None
        if stream is not None:
            return stream
        is_followed = is_whole and self._ahead.is_useful  # not after a request for any epoch but the next
        return self._engine.stream(_epochs(plan, epoch, is_followed, offset, every))

    def _meter(self, batch: Batch, repeats: int) -> None:
        meter, images = self._engine.meter, len(batch) - repeats
        meter.images += images
        meter.bytes += sum(map(len, batch.images[:images]))

    def note(self, epoch: int, steps: int | None = None, /) -> None:
        """Record for `state_dict` that batches of an epoch have been delivered.

        Args:
            epoch: The number of the epoch.
            steps: The batches before this number have been delivered. None: those with which this epoch began.
        """
        own = self._readers.own
        own.note(epoch, steps, self._delivered(own.plan, epoch, steps))

    def reader(self, owner: object, /) -> Position:
        """The position of a new iterator over this source, its owner; for code that reads ahead.

        It begins where the source does. It has the states of the owner, and the source's as long as there is no other.
        """
        return self._readers.add(owner)

    def skip(self, sample: Skipped, /) -> None:
        """Record in `skipped` a sample that is left out."""
        self.skipped.append(sample)
        self._engine.meter.skipped += 1

    def first_step(self, epoch: int, /) -> int:
        """The number of an epoch's first batch: 0, except in the epoch of a loaded state; see `first_epoch`."""
        return self._readers.any().plan.first_step(epoch)

    def state_dict(self, *, epoch: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """The position of the delivery, exact to the sample.

        By default it is the position after the batch that `epoch` or an iterator of this package has delivered last.
        While several passes are open, it is refused: close the others. A pass that has ended does not change the
        position of one that is open.
        If several iterators read the source, each has a position of its own: ask the iterator. Your own DALI pipeline
        reads ahead, so only you know what has left it: give ``epoch`` and ``steps``.

        In order, the states of all ranks at one step are equal, and any number of ranks can continue from one of them.
        Out of order, a rank knows only its own samples: `merge_states` joins the states of all ranks.

        Args:
            epoch: The number of the epoch; give both, or neither.
            steps: How many batches of it have been delivered, counted from batch 0.

        Returns:
            A dictionary of dictionaries, lists, texts and numbers.

        Raises:
            OptionError: The epoch has fewer batches, or the position is not known, because of several readers for
                example.
        """
        if (epoch is None) != (steps is None):
            raise OptionError("Wanted epoch and steps, or neither. Found: one of them")
        if epoch is not None and steps is not None:
            epoch, steps = check_int("epoch", epoch, 0), check_int("steps", steps, 0)
            reader = self._readers.any()  # an iterator can have loaded another state than the source
            plan = reader.plan
            state = state_after(plan, epoch, steps, self._delivered(plan, epoch, steps))
            found = reader.recorded(state, between="unknown")
            return (found if self._readers.is_alone else found.with_past(())).to_dict()
        return self._readers.only().state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue from a state: its epoch, `first_epoch`, then has what was left of it, and other epochs are complete.

        It applies to all iterators over the source, from their next pass on; passes that have begun raise `StateError`
        at their next batch. Batch size and number of ranks may differ from those of the state. Raises `StateError` for
        a state of another split, seed or order.
        """
        self._readers.load(self.plan.going_on(state))
        self._ahead.drop()

    def read(self, *, numbers: Numbers | None = None) -> tuple[Any, ...]:
        """Images, labels, metadata and features as outputs of the DALI pipeline that is being defined.

        Images are uint8 samples of shape ``(bytes,)``, not decoded. Class numbers are int32 samples of shape ``(1,)``,
        as from DALI's readers; masks and arrays are uint8 samples as images are; a split without labels has no such
        output. The ``metadata`` columns follow in their order: integers as int64 and other numbers as float64 samples
        of shape ``(1,)``, texts in UTF-8 and blobs as uint8 samples. The features follow in their
        order, in their own types, as samples of shape ``(1,)``, or ``(N,)`` for vectors. Random ``numbers``, as in
        `GenericIterator`, are the last outputs, in their order. ``StopIteration`` ends each
        epoch, and the pipeline's ``reset()`` starts the next one, from `first_epoch` on. Each pipeline counts its own
        epochs. DALI reads ahead, so you must tell `state_dict` what has left the pipeline. Raises `MissingExtraError`
        without DALI.
        """
        own = self._readers.own
        own.leave()
        reader = EpochReader(self, own, first_epoch=own.plan.first_epoch, numbers=numbers)
        return reader.outputs(is_followed=False)

    def stats(self) -> Stats:
        """What has been delivered so far, and how reading performs."""
        return self._engine.stats()

    def serve_metrics(self, *, port: int, host: str = "127.0.0.1") -> int:
        """Serve `stats` to Prometheus at ``http://host:port/metrics`` until the source is closed.

        Requests are not authenticated; bind to trusted networks.

        Args:
            port: The port; 0 takes a free one.
            host: The address to bind to.

        Returns:
            The port.

        Raises:
            OptionError: The address cannot be used.
            MissingExtraError: prometheus-client is not installed.
        """
        table = self.split.data_table or self.split.address
        labels = {"table": table, "split": str(self.split.index), "rank": str(self.rank)}
        server = serve(self._engine.stats, labels, host=host, port=check_int("port", port, 0, 65535))
        self._engine.at_close(server.close)
        return server.port

    def close(self) -> None:
        """End all reads, drop what was read ahead, and close connections, within about two seconds. You may call it
        twice.
        """
        self._ahead.drop()
        self._closing()

    def at_close(self, close: Callable[[], None], /) -> None:
        """Let `close` call this too; raises `ClosedError` if the source is closed. It must not refer to the source."""
        self._engine.at_close(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_ranks(self) -> None:
        if self._has_detected_ranks:
            check_detected(self.rank, self.world_size)

    def _delivered(self, plan: Plan, epoch: int, steps: int | None) -> Delivered | None:
        """Out of order, what was delivered with the batches of an epoch of a plan before number ``steps``."""
        if self.in_order or steps is None or steps == plan.first_step(epoch):
            return None
        return self._marks.get(epoch, steps)

    def _counted(self, epoch: int) -> Generator[Batch, None, None]:
        own = self._readers.own
        number = own.begin(epoch)
        try:
            for batch in self.batches(epoch):
                own.note(epoch, batch.step + 1, batch.delivered, of=number)
                yield batch
            own.note(epoch + 1, None, of=number)  # also on a rank that had one step less than others
        finally:
            own.end(number)

    def _batch(self, filled: Filled, epoch: int, reader: Position) -> Batch:
        for sample in filled.skipped:
            self.skip(Skipped(UUID(bytes=sample.id), sample.position, epoch, str(sample.error), filled.number))
        for sample in (*filled.skipped, *filled.skipped_repeats):
            reader.leave_out(epoch, filled.number, sample.position)
        batch = self._batch_of(filled, epoch)
        if self.in_order:
            return batch
        delivered = filled.end, filled.late  # not the images
        self._marks.put(epoch, filled.number + 1, delivered)
        return replace(batch, delivered=delivered)


class _Ahead:
    """The stream of an epoch that has ended, which already reads the next one."""

    def __init__(self) -> None:
        self.kept: tuple[Plan, int, Stream] | None = None  # the plan, the epoch and the stream
        self.is_useful = True  # whether to read the next epoch ahead: not after another one was requested

    def take(self, plan: Plan, epoch: int) -> Stream | None:
        """The stream, if it reads this epoch; another one is dropped."""
        if self.kept is None:
            return None
        its_plan, its_epoch, stream = self.kept
        if its_plan is plan and its_epoch == epoch and stream.is_usable():
            self.kept = None
            return stream
        self.drop()
        self.is_useful &= its_plan is not plan
        return None

    def keep(self, plan: Plan, epoch: int, stream: Stream) -> None:
        """Keep a stream that reads this epoch."""
        self.drop()
        self.kept = plan, epoch, stream

    def drop(self) -> None:
        """Drop what was read."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept[2].close()


class _Epoch(Iterator[Batch]):
    """The batches of a generator, with a name."""

    def __init__(self, batches: Generator[Batch, None, None], name: str) -> None:
        self._batches, self._name = batches, name

    def __next__(self) -> Batch:
        return next(self._batches)

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def close(self) -> None:
        """End the reads; nothing is left to iterate over."""
        self._batches.close()


def check_source(source: Source) -> None:
    """Raises `OptionError` for anything else."""
    if not isinstance(source, Source):
        raise OptionError(f"Wanted a source, such as loader.CassandraSource. Found: {source!r}")


def _epochs(plan: Plan, epoch: int, is_followed: bool, offset: int, every: int) -> Iterator[Iterator[Any]]:
    """The epochs to read, in order. Must not refer to the source, whose reads end when it is garbage-collected."""
    while True:
        yield plan.steps(epoch, offset=offset, every=every)
        if not is_followed or not plan.whole.samples:
            return
        epoch += 1


def _missing(filled: Filled) -> list[tuple[bytes, str]]:
    """The samples of a batch that were skipped although they were not deleted: ids and errors."""
    return [(one.id, str(one.error)) for one in filled.skipped if not isinstance(one.error, DeletedImageError)]


def _again(
    remake: Callable[..., Source],
    options: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    is_detected: bool,
    is_closed: bool = False,
) -> Any:
    source = remake(**options)
    source._has_detected_ranks = is_detected
    if state is not None:
        source.load_state_dict(state)
    if is_closed:
        source.close()
    return source
