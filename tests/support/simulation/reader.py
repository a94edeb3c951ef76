"""A source of the loader on a simulated cluster, and the split that it reads."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid5

import numpy as np

from formats.checksums import checksum
from formats.splits.opened import OpenSplit, SplitRows, held_split
from loader import Batch, LoaderError, Split
from loader.cassandra.clients import TableReader, target_of
from loader.cassandra.cluster import Cluster
from loader.mixed.failover import FailoverFetcher, Made
from loader.order.delivery import Position
from loader.prefetch.fetcher import Fetcher
from loader.source import Options, Source
from loader.sources import parts_by_id, strata_of
from schemas.manifest import SplitPart
from tests.support.simulation.clock import Clock
from tests.support.simulation.cluster import Ledger, SimulatedClient, Store, Weather
from tests.support.simulation.scenarios import CALM, ROWS, Life, Scenario

SEED = 3
FINGERPRINT = "5" * 64
IDS = [uuid5(UUID(int=0), str(position)).bytes for position in range(ROWS)]
_CLUSTER = Cluster(hosts=["127.0.0.1"], connections=1, client="acsylla")
_PATIENCE = 2.2  # timeouts after which a consumer hangs that waits for a batch


@dataclass(frozen=True, slots=True)
class Stored:
    """The split of a scenario, what the cluster holds of it, and the bytes that the loader must deliver."""

    split: Split
    store: Store
    images: list[bytes]  # by position
    labels: list[int]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in memory, with checksums."""

    ids: Any
    labels: Any
    found: Any

    def rows(self, part: SplitPart, *, cache: Any) -> SplitRows:
        """The rows of the one split."""
        return SplitRows(self.ids, self.labels)

    def checksums(self, part: SplitPart, *, cache: Any) -> Any:
        """Their checksums."""
        return self.found

    def by_class(self, part: SplitPart, *, cache: Any) -> Any:
        """Their positions in the order of their labels."""
        return np.argsort(self.labels, kind="stable")


def stored(scenario: Scenario) -> Stored:
    """The split and the table of a scenario."""
    rows, numbers = scenario.rows, random.Random(scenario.number)
    images = [bytes([position]) * numbers.randint(*scenario.sizes) for position in range(rows)]
    labels = [position % 7 for position in range(rows)]
    checksums = np.array([checksum(image) for image in images], dtype=np.int64)
    ids = np.frombuffer(b"".join(IDS[:rows]), dtype=np.uint8).reshape(-1, 16)
    part = SplitPart(
        0, rows, dict(Counter(labels)), FINGERPRINT, (), checksums="c" * 64 if scenario.has_checksums else None
    )
    numbered = np.array(labels, dtype=np.int32) if scenario.has_labels else None
    opened = held_split("a split", [(part, SplitRows(ids, numbered))], num_classes=7, data_table="test.data",
                        metadata_table="test.metadata")  # fmt: skip
    opened = OpenSplit(opened.address, opened.manifest, _Rows(ids, numbered, checksums))
    store = Store(
        images={IDS[p]: image for p, image in enumerate(images) if p not in scenario.missing},
        labels=dict(zip(IDS, labels, strict=False)),
        has_kept=bool(scenario.replaced),
    )
    for position in scenario.replaced - scenario.missing:
        store.kept[IDS[position], int(checksums[position])] = images[position]
        store.images[IDS[position]] = newer = images[position] + b"new"
        if not scenario.has_checksums:
            images[position] = newer
    store.images |= {IDS[position]: None for position in scenario.deleted - scenario.missing}
    for position in scenario.bad:
        store.kept.pop((IDS[position], int(checksums[position])), None)
    return Stored(Split(opened, 0, opened.rows(0), data_table="test.data"), store, images, labels)


@dataclass(slots=True)
class Got:
    """What a reader has delivered of an epoch."""

    batches: list[Batch] = field(default_factory=list)
    skipped: list[list[int]] = field(default_factory=list)  # with each batch, all positions left out so far
    left_out: list[int] = field(default_factory=list)  # also after the last batch
    error: LoaderError | None = None
    is_complete: bool = False


class Reader:
    """A worker of a rank: a source with a clock of its own."""

    def __init__(
        self, scenario: Scenario, life: Life, found: Stored, state: Mapping[str, Any] | None, *, rank: int, worker: int
    ) -> None:
        self.scenario, self.life, self.rank, self.worker = scenario, life, rank, worker
        self._open: Iterator[Batch] = iter(())
        self.clock = Clock(hash((scenario.number, rank, worker)))
        self.ledger = Ledger()
        self.taken = 0  # bytes of batches
        self.last = -1  # the number of the last batch
        self.has_failed = self.is_complete = False
        options = Options.checked(
            batch_size=life.batch_size, rank=rank, world_size=life.ranks, seed=SEED, shuffle=scenario.shuffle,
            last_batch_policy=scenario.policy, memory_budget=life.budget, timeout=life.timeout,  # type: ignore[arg-type]
            max_in_flight=life.max_in_flight,
        )  # fmt: skip
        ledger, self.patience = self.ledger, _PATIENCE * life.timeout
        self.source = self._source(found, options)
        ledger.held = lambda: self.source.stats().held_bytes
        self._position: Position | None = None
        if life.workers > 1:  # as of workers in other processes
            self._position = self.source.reader(self)
            self._position.leave(is_elsewhere=True)
        if state is not None:
            self.source.load_state_dict(state)

    def _source(self, found: Stored, options: Options) -> Source:
        scenario, life, split, clock, ledger = self.scenario, self.life, found.split, self.clock, self.ledger

        def table(weather: Weather) -> TableReader:
            target = target_of(split, _CLUSTER)
            # A quorum finds what one replica lacks.
            client = SimulatedClient(clock, found.store, weather, ledger=ledger, level=target.consistency)
            return TableReader(target, checksums=split.checksums, client=client)

        def fetcher() -> Fetcher:
            if not scenario.has_copy:
                return table(life.weather)
            weathers = (life.weather, CALM)
            return FailoverFetcher([Made("a cluster", partial(table, one), is_table=True) for one in weathers])

        parts = parts_by_id(
            split, fetcher, options, in_order=scenario.in_order, on_missing="skip" if scenario.skips else "raise",
            max_missing=scenario.max_missing, checksums=split.checksums_fingerprint,
            strata=strata_of(split, options, scenario.sampling, None), runtime=self.clock.runtime(),
        )  # fmt: skip
        return Source(split, parts, options, has_detected_ranks=False, remake=Source)

    def read(self, epoch: int, steps: int | None) -> Got:
        """Read so many batches of an epoch."""
        got, life = Got(), self.life
        if life.tries and steps != 0:  # without another batch, the position is that of the first try
            with suppress(LoaderError):  # the epoch that is read anew tells
                self._open = self._batches(epoch)
                self._take(Got(), life.tries)
            self._open.close()  # type: ignore[attr-defined]
            self.source.skipped.clear()
        for attempt in range(2):
            self._open = self._batches(epoch)
            try:
                self._take(got, steps)
            except LoaderError as error:
                if life.weather.late_start and self.ledger.connections == 1 and not attempt:
                    continue  # the second connection is not refused
                got.error, self.has_failed = error, True
            break
        self.clock.deadline = float("inf")
        self.last, self.is_complete = got.batches[-1].step if got.batches else -1, got.is_complete
        got.left_out = [one.position for one in self.source.skipped if one.epoch == epoch]
        return got

    def settle(self) -> None:
        """Let the loop do what it can do now."""
        self.clock.wait(lambda: False, 0.0)

    def close(self) -> None:
        """End all reads."""
        self.clock.deadline = self.clock.now + self.patience
        try:
            with suppress(AttributeError):
                self._open.close()  # type: ignore[attr-defined]
            self.source.close()
            self.clock.wait(lambda: self.clock.are_over)
        finally:
            self.clock.stop()

    def _batches(self, epoch: int) -> Iterator[Batch]:
        if self.life.workers == 1:
            return self.source.epoch(epoch)
        return self.source.batches(epoch, offset=self.worker, every=self.life.workers, reader=self._position)

    def _take(self, got: Got, steps: int | None) -> None:
        while steps is None or len(got.batches) < steps:
            self.clock.deadline = self.clock.now + self.patience
            batch = next(self._open, None)
            if batch is None:
                got.is_complete = True
                return
            got.batches.append(batch)
            got.skipped.append([one.position for one in self.source.skipped if one.epoch == batch.epoch])
            sizes = dict(zip(batch.positions.tolist(), map(len, batch.images), strict=True))
            self.taken += sum(sizes.values())  # a sample that fills a batch was read once
            self.clock.deadline = float("inf")
            if self.life.step_seconds:
                self.clock.wait(lambda: False, self.life.step_seconds)
