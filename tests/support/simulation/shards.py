"""Shards in a simulated object store: scenarios, the source that reads them, and what it must deliver."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from formats.shards.folder import manifest_of
from formats.shards.layout import BLOCK, END, header, piece_digest, shard_name
from formats.shards.sample_metadata import class_text, facts_text
from formats.splits.opened import SplitRows, held_split
from loader import ShardError
from loader.shards import pieces as loader_pieces
from loader.shards.shard_batches import ShardBatches
from loader.shards.shard_order import EpochOrder
from loader.shards.shard_schedule import ShardState
from loader.shards.shard_set import Shards
from loader.source import Options, Source
from loader.sources import parts_of_shards
from schemas import SplitPart
from schemas.shards import Piece, Shard
from tests.support.simulation.cluster import Weather, brief
from tests.support.simulation.judge import Deal, Play, want
from tests.support.simulation.objects import ObjectStore
from tests.support.simulation.reader import IDS, SEED, Got, Reader
from tests.support.simulation.scenarios import ROWS, WEATHERS, Life, life_of, weather_of

_WEATHERS = {name: weather for name, weather in WEATHERS.items() if name != "stale replicas"} | {
    "cut answers": Weather(latency=0.01, cut=0.3),
    "wrong bytes": Weather(latency=0.01, altered=0.3),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShardScenario:
    """Shards, and jobs that read them, one after another. Samples are named by their positions, pieces and shards by
    their numbers. The ``budget`` of a life is 1 for the least possible one.
    """

    number: int = 0
    pieces: tuple[int, ...] = (1,)  # their samples
    together: int = 3  # pieces of a shard
    part_bytes: int = 1 << 20  # of one request
    sizes: tuple[int, int] = (8, 8)  # of images, in bytes
    is_packed: bool = False  # with zstd
    policy: str = "PARTIAL"
    shuffle: bool = False
    streams: int = 1
    mix: int = 1
    damaged: frozenset[int] = frozenset()  # pieces
    ending: frozenset[int] = frozenset()  # shards that end too early
    gone: frozenset[int] = frozenset()  # shards
    lives: tuple[Life, ...] = (Life(),)

    in_order, skips = True, False
    has_copy = False  # of another store
    sizing = ("pieces", "damaged", "ending", "gone")  # what `smaller` changes

    __repr__ = brief

    @property
    def rows(self) -> int:
        """The number of samples."""
        return sum(self.pieces)

    def shards(self) -> list[range]:
        """The pieces of each shard."""
        return [
            range(start, min(start + self.together, len(self.pieces)))
            for start in range(0, len(self.pieces), self.together)
        ]

    @property
    def bad_pieces(self) -> set[int]:
        """The pieces that cannot be read."""
        shards = self.shards()
        gone = {piece for number in self.gone for piece in shards[number]}
        return {*self.damaged} | gone | {shards[number][-1] for number in self.ending}

    def positions(self, piece: int) -> range:
        """The samples of a piece."""
        first = sum(self.pieces[:piece])
        return range(first, first + self.pieces[piece])

    @property
    def bad(self) -> frozenset[int]:
        """The samples that cannot be read."""
        return frozenset(position for piece in self.bad_pieces for position in self.positions(piece))

    def smaller(self) -> "Iterator[ShardScenario]":
        """Scenarios with fewer pieces or samples, or with one fault less."""
        for count in {1, len(self.pieces) // 2, len(self.pieces) - 1} - {0, len(self.pieces)}:
            kept = {"damaged": count, "ending": -(-count // self.together), "gone": -(-count // self.together)}
            sets = {name: frozenset(one for one in getattr(self, name) if one < end) for name, end in kept.items()}
            yield replace(self, pieces=self.pieces[:count], **sets)  # type: ignore[arg-type]
        for place, samples in enumerate(self.pieces):
            for less in {1, samples // 2} - {0, samples}:
                yield replace(self, pieces=(*self.pieces[:place], less, *self.pieces[place + 1 :]))
        for name in self.sizing[1:]:
            if getattr(self, name):
                yield replace(self, **{name: frozenset()})  # type: ignore[arg-type]


def shard_scenario(number: int) -> ShardScenario:
    """The scenario of a number."""
    numbers = random.Random(number)
    count = numbers.choice((1, numbers.randint(1, 6), numbers.randint(1, 30)))
    most = numbers.choice((1, 3, 3, ROWS // count))
    low = numbers.choice((1, 8, 2000))
    pieces = tuple(numbers.randint(1, most) for _ in range(count))
    together = numbers.choice((1, 3, 3, 30))
    shards = -(-count // together)
    return ShardScenario(
        number=number,
        pieces=pieces,
        together=together,
        part_bytes=(3000 + low) * max(pieces) // numbers.choice((1, 1, 2, 4)),
        sizes=(low, low * numbers.choice((1, 1, 4))),
        is_packed=numbers.random() < 0.3,
        policy=numbers.choice(("PARTIAL", "FILL", "DROP")),
        shuffle=numbers.random() < 0.7,
        streams=numbers.choice((1, 2, 3, 12)),
        mix=numbers.choice((1, 3, 8, 1000)),
        damaged=_some(numbers, count, 0.1),
        ending=_some(numbers, shards, 0.05),
        gone=_some(numbers, shards, 0.05),
        lives=tuple(_life(numbers) for _ in range(numbers.choice((1, 2, 2, 3)))),
    )


def _some(numbers: random.Random, count: int, share: float) -> frozenset[int]:
    """With this chance, one of several."""
    return frozenset([numbers.randrange(count)] if numbers.random() < share else [])


def _life(numbers: random.Random) -> Life:
    life = life_of(numbers, in_order=True)
    return replace(life, budget=numbers.choice((1, 1, 2000, 20_000, 1 << 40)), weather=weather_of(numbers, _WEATHERS))


@dataclass(frozen=True, slots=True)
class StoredShards:
    """The objects of a scenario, their manifest, and the bytes that the loader must deliver."""

    shards: Shards
    objects: Mapping[str, bytes]
    places: Mapping[int, tuple[str, int, int]]  # of pieces: shard, first byte, size
    images: list[bytes]  # by position
    labels: list[int]


@dataclass
class _Access:
    """As `Client`: the store of the reader that is made now."""

    store: ObjectStore

    def storage(self, bucket: str, folder: str) -> ObjectStore:
        """Connect."""
        return self.store.storage(bucket, folder)


def stored_shards(scenario: ShardScenario) -> StoredShards:
    """The shards of a scenario."""
    numbers = random.Random(scenario.number)
    images = [bytes([position]) * numbers.randint(*scenario.sizes) for position in range(scenario.rows)]
    labels = [position % 7 for position in range(scenario.rows)]
    objects, places, shards = {}, {}, []
    for number, members in enumerate(scenario.shards()):
        name, parts, pieces = shard_name("simulated", number, 1), [], []
        for piece in members:
            body = b"".join(_sample(one, images[one], scenario.is_packed) for one in scenario.positions(piece))
            body += END if piece == members[-1] else b""
            places[piece] = name, sum(map(len, parts)), len(body)
            pieces.append(Piece(scenario.pieces[piece], len(body), piece_digest(body)))
            parts.append(body if piece not in scenario.damaged else body[:-1] + bytes([body[-1] ^ 1]))
        whole = b"".join(parts)
        samples = sum(scenario.pieces[piece] for piece in members)
        shards.append(Shard(name, samples, len(whole), f"{number:064}", tuple(pieces)))
        if number not in scenario.gone:
            objects[name] = whole[:-700] if number in scenario.ending else whole
    counts = {label: labels.count(label) for label in {*labels}}
    manifest = manifest_of(shards, label_type="int", class_names={}, counts=counts, seed=0, source="",
                           source_fingerprint="", options={})  # fmt: skip
    rows = SplitRows(np.empty((0, 16), dtype=np.uint8), None)
    part = SplitPart(0, manifest.samples, manifest.counts, manifest.fingerprint, ())
    opened = held_split(ObjectStore.address, [(part, rows)], num_classes=7, class_names={}, label_type="int")
    found = Shards(opened, 0, rows, data_table="", bucket="simulated", folder="shards", manifest=manifest)
    return StoredShards(found, objects, places, images, labels)


def _sample(position: int, image: bytes, is_packed: bool) -> bytes:
    files = {"bin.zst": pa.Codec("zstd").compress(image, asbytes=True)} if is_packed else {"bin": image}
    files |= {"cls": class_text(position % 7), "json": facts_text(IDS[position], f"{position}", label=None)}
    parts = []
    for extension, data in files.items():
        parts += [header(f"{position:09}.{extension}", len(data)), data, bytes(-len(data) % BLOCK)]
    return b"".join(parts)


class ShardReader(Reader):
    """A worker of a rank that reads shards."""

    def _source(self, found: StoredShards, options: Options) -> Source:  # type: ignore[override]
        scenario: ShardScenario = self.scenario  # type: ignore[assignment]
        least = max(size for _, _, size in found.places.values())
        if scenario.is_packed:
            least += options.batch_size * scenario.sizes[1]
        options = replace(options, memory_budget=least - 1 + self.life.budget)
        self.budget = options.memory_budget
        self.patience *= 1 + self.life.batch_size  # each piece takes as long, if the budget holds but one
        pieces = {(name, start): piece for piece, (name, start, _) in found.places.items()}
        store = ObjectStore(self.clock, found.objects, pieces, self.life.weather, self.ledger)
        shards = replace(found.shards, client=_Access(store))
        parts = parts_of_shards(
            shards, options, ShardBatches("int"), mix=scenario.mix, streams=scenario.streams, cache=None,
            cache_bytes=0, runtime=self.clock.runtime(),
        )  # fmt: skip
        return Source(shards, parts, options, has_detected_ranks=False, remake=Source)

    def settle(self) -> None:
        """Do nothing: pieces are counted by the consumer."""


class ShardPlay(Play):
    """Plays a scenario of shards."""

    _reader = ShardReader
    _fatal = ShardError

    def run(self) -> int:
        """As `Play.run`."""
        is_quiet = patch.object(loader_pieces.log, "disabled", True)  # of warnings of small budgets
        with is_quiet, patch.object(loader_pieces, "_PART_BYTES", self.scenario.part_bytes):
            return super().run()

    def _made(self) -> StoredShards:
        self._deals: dict[Any, list[list[int]]] = {}
        self._keyed: dict[int, EpochOrder] = {}
        return stored_shards(self.scenario)

    def _split(self) -> Shards:
        found: Shards = self._stored.shards
        return found

    def _epoch_order(self, epoch: int) -> EpochOrder:
        if epoch not in self._keyed:
            pieces = np.array(self.scenario.pieces, dtype=np.int64)
            found = EpochOrder(pieces, self._stored.shards.fingerprint, SEED, epoch, self.scenario.shuffle)
            self._keyed[epoch] = found
        return self._keyed[epoch]

    def _order(self) -> list[int]:
        if self._epoch not in self._orders:
            pieces = self._epoch_order(self._epoch).pieces.tolist()
            self._orders[self._epoch] = [one for piece in pieces for one in self.scenario.positions(piece)]
        return self._orders[self._epoch]

    def _unit(self, life: Life, reader: Reader) -> list[Deal]:
        """As `Play._unit`. What FILL repeats comes from the plan."""
        order, plan = self._order(), reader.source.plan
        state = plan.loaded if plan.loaded is not None and plan.loaded.epoch == self._epoch else None
        base, done = (tuple(range(self.scenario.rows)), 0) if state is None else (_places(state), state.steps)
        rest = {*base} - self._done(state, life.batch_size, life.ranks) if state is not None else {*base}
        want(rest == {*self._left}, f"continues with {sorted(rest)} instead of {self._left}")
        first = (self.scenario.rows - len(base)) // (life.batch_size * life.ranks)
        batches = self._dealt(self._epoch, base, life.batch_size, life.ranks, reader.rank)[done:]
        found, starts = [], [sum(self.scenario.pieces[:piece]) for piece in range(len(self.scenario.pieces))]
        for number, (places, step) in enumerate(zip(batches, plan.steps(self._epoch), strict=True), start=first + done):
            taken = [starts[piece] + inside for piece, inside in zip(step.pieces, step.insides, strict=True)]
            found.append(Deal(number, [order[place] for place in places], taken[len(taken) - step.repeats :]))
        return found[reader.worker :: life.workers]

    def _done(self, state: ShardState, size: int, ranks: int) -> set[int]:
        """The places of the batches that a state has behind it."""
        base = _places(state)
        return {
            place
            for rank in range(ranks)
            for places in self._dealt(state.epoch, base, size, ranks, rank)[: state.steps]
            for place in places
        }

    def _dealt(self, epoch: int, base: tuple[int, ...], size: int, ranks: int, rank: int) -> list[list[int]]:
        """The places of a rank's batches, by lists."""
        key = (epoch, base, size, ranks, rank)
        if key not in self._deals:
            self._deals[key] = self._dealt_anew(*key)
        return self._deals[key]

    def _dealt_anew(self, epoch: int, base: Sequence[int], size: int, ranks: int, rank: int) -> list[list[int]]:
        scenario, order, streams = self.scenario, self._epoch_order(epoch), self.scenario.streams
        whole, rest = divmod(len(base), size * ranks)
        if scenario.policy == "DROP":
            mine = base[rank * whole * size : (rank + 1) * whole * size]
        else:
            first, end = (one * whole * size + rest * one // ranks for one in (rank, rank + 1))
            mine = base[first:end]
        count = -(-len(mine) // size)
        sizes = [min(size, len(mine) - batch * size) for batch in range(count)]
        found: list[list[int]] = [[] for _ in sizes]
        for stream in range(streams):
            batches = range(stream, count, streams)
            samples = sum(sizes[batch] for batch in batches)
            own, mine = list(mine[:samples]), mine[samples:]
            mixed: list[int] = []
            length = -(-scenario.mix * (stream + 1) // streams)
            while own:
                mixed += order.mixed(np.array(own[:length], dtype=np.int64)).tolist()
                own, length = own[length:], scenario.mix
            for batch in batches:
                found[batch], mixed = mixed[: sizes[batch]], mixed[sizes[batch] :]
        if scenario.policy == "FILL":
            found += [[]] * (-(-len(base) // (size * ranks)) - count)
        return found

    def _given(self, state: Mapping[str, Any]) -> tuple[int, list[int]]:
        found = ShardState.from_dict(state)
        done = self._done(found, found.batch_size, found.world_size)
        return found.epoch, sorted({*_places(found)} - done)

    def _judge_error(self, life: Life, unit: Sequence[Deal], got: Got) -> None:
        """As `Play._judge_error`; an error of a piece names its shard and its place."""
        super()._judge_error(life, unit, got)
        if isinstance(got.error, ShardError):
            bad = [self._stored.places[piece] for piece in self.scenario.bad_pieces]
            is_named = any(name in str(got.error) for name, _, _ in bad)
            is_placed = "no such file" in str(got.error) or any(f"from {at:,}" in str(got.error) for _, at, _ in bad)
            want(is_named and is_placed, f"names neither shard nor place: {got.error}")

    def _check_memory(self, reader: Reader) -> None:
        """Compare what is held, says the loader, and its buffers with the budget."""
        ledger, budget = reader.ledger, reader.budget  # type: ignore[attr-defined]
        want(ledger.most <= budget, f"holds {ledger.most} bytes, with a budget of {budget}")
        if not reader.life.tries:  # a stream that is closed frees its buffers when they have been read
            want(ledger.buffered <= budget, f"has buffers of {ledger.buffered} bytes, with a budget of {budget}")


def _places(state: ShardState) -> tuple[int, ...]:
    """The places that a state distributes, in their order."""
    return tuple(place for start, stop in state.deal().left for place in range(start, stop))
