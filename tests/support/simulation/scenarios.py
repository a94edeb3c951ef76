"""What is simulated: splits, tables, jobs that read them, and random ones of each, by number."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from loader.order.strata import SamplingName
from tests.support.simulation.cluster import Weather, brief

ROWS = 90
CALM = Weather()
WEATHERS = {
    "calm": CALM,
    "jitter": Weather(latency=0.02, jitter=0.1),
    "narrow link": Weather(latency=0.01, bandwidth=20_000.0),
    "stragglers": Weather(latency=0.01, stragglers=0.05),
    "lost answers": Weather(latency=0.01, lost=8),
    "refusals": Weather(latency=0.01, refused=0.3),
    "restart": Weather(latency=0.01, outage=(0.05, 4.0)),
    "long outage": Weather(latency=0.01, outage=(0.03, 200.0)),
    "stale replicas": Weather(latency=0.01, stale=0.3),
    "answers at once": Weather(latency=0.01, jitter=0.5, tick=0.25),
    "late start": Weather(latency=0.01, late_start=True),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Life:
    """A job, from its start or from the state of the one before, to its end."""

    batch_size: int = 1
    ranks: int = 1
    workers: int = 1  # of each rank
    epochs: int = 0  # complete ones, before the last
    steps: int | None = None  # of the last epoch, after which it is stopped; None: all
    tries: int = 0  # batches of each epoch that are read first; the iterator is then closed, and the epoch read anew
    step_seconds: float = 0.0  # between two batches
    budget: int = 1 << 40  # bytes
    max_in_flight: int = 64
    timeout: float = 60.0
    weather: Weather = CALM

    __repr__ = brief

    @property
    def may_fail(self) -> bool:
        """Whether the cluster is away for longer than reads are repeated."""
        return self.weather.outage[1] > self.timeout / 2


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scenario:
    """A split, its table, and jobs that read it, one after another. Images are named by their positions."""

    number: int = 0
    rows: int = 1
    policy: str = "PARTIAL"
    shuffle: bool = False
    is_stratified: bool = False
    in_order: bool = True
    skips: bool = False  # whether what is missing is left out
    max_missing: float = 1.0
    missing: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()  # a later run has kept their bytes
    has_checksums: bool = False
    has_copy: bool = False  # a second cluster, which always answers
    has_labels: bool = True  # in the split; else they are read with the images
    sizes: tuple[int, int] = (8, 8)  # of images, in bytes
    lives: tuple[Life, ...] = (Life(),)

    __repr__ = brief

    sizing = ("rows", "missing", "deleted", "replaced")  # what `smaller` changes

    @property
    def sampling(self) -> SamplingName:
        """How classes share an epoch. A split without labels does not know them."""
        return "stratified" if self.is_stratified and self.shuffle and self.has_labels else "shuffled"

    @property
    def bad(self) -> frozenset[int]:
        """What cannot be read."""
        return self.missing | self.deleted

    def smaller(self) -> "Iterator[Scenario]":
        """Scenarios with fewer images, or fewer that are missing, deleted or replaced."""
        sets = self.sizing[1:]
        for rows in {1, self.rows // 2, self.rows - 1} - {0, self.rows}:
            yield replace(
                self, rows=rows, **{name: frozenset(p for p in getattr(self, name) if p < rows) for name in sets}
            )
        for name in sets:
            for position in sorted(getattr(self, name)):
                yield replace(self, **{name: getattr(self, name) - {position}})  # type: ignore[arg-type]


def scenario(number: int) -> Scenario:
    """The scenario of a number."""
    numbers = random.Random(number)
    rows = numbers.choice((numbers.randint(1, 8), numbers.randint(1, ROWS)))
    in_order = numbers.random() < 0.6
    low = numbers.choice((1, 8, 200))
    shuffle = numbers.random() < 0.7
    return Scenario(
        number=number,
        rows=rows,
        policy=numbers.choice(("PARTIAL", "FILL", "DROP")),
        shuffle=shuffle,
        is_stratified=shuffle and numbers.random() < 0.3,
        in_order=in_order,
        skips=numbers.random() < 0.7,
        max_missing=numbers.choice((1.0, 1.0, 0.0)),
        missing=_some(numbers, rows, 0.3),
        deleted=_some(numbers, rows, 0.2),
        replaced=_some(numbers, rows, 0.2),
        has_checksums=numbers.random() < 0.5,
        has_labels=numbers.random() < 0.7,
        sizes=(low, low * numbers.choice((1, 1, 4))),
        lives=tuple(life_of(numbers, in_order=in_order) for _ in range(numbers.choice((1, 2, 2, 3)))),
        has_copy=numbers.random() < 0.2,
    )


def _some(numbers: random.Random, rows: int, share: float) -> frozenset[int]:
    """With this chance some positions, sometimes all."""
    if numbers.random() >= share:
        return frozenset()
    density = numbers.choice((0.03, 0.1, 0.5, 1.0))
    return frozenset(position for position in range(rows) if numbers.random() < density)


def life_of(numbers: random.Random, *, in_order: bool) -> Life:
    """A random life."""
    ranks = numbers.choice((1, 1, 2, 3, 4))
    return Life(
        batch_size=numbers.choice((1, 2, 3, 5, 8, 16)),
        ranks=ranks,
        workers=numbers.choice((1, 1, 2, 3)) if in_order else 1,
        epochs=numbers.choice((0, 0, 1, 2)),
        steps=numbers.choice((None, numbers.randint(0, 3), numbers.randint(0, 12))),
        tries=numbers.choice((0, 0, 0, 1, 3)),
        step_seconds=numbers.choice((0.0, 0.0, 0.01, 0.3)),
        budget=numbers.choice((1, 50, 1000, 1 << 40)),
        max_in_flight=numbers.choice((1, 2, 5, 64)),
        weather=weather_of(numbers, WEATHERS),
    )


def weather_of(numbers: random.Random, weathers: Mapping[str, Weather]) -> Weather:
    """One or two kinds of weather at once."""
    names = numbers.sample(sorted(weathers), numbers.choice((1, 1, 2)))
    usual, found = CALM, weathers[names[0]]
    for name in names[1:]:
        other = {one.name: getattr(weathers[name], one.name) for one in fields(Weather)}
        found = replace(found, **{key: value for key, value in other.items() if value != getattr(usual, key)})
    return found


def simpler(scenario: Any) -> Iterator[Any]:
    """Scenarios of the same kind with one thing less."""
    for place in range(len(getattr(scenario, "lives", ()))):
        others = scenario.lives[:place] + scenario.lives[place + 1 :]
        if others:
            yield replace(scenario, lives=others)
        for life in _simpler(scenario.lives[place], Life()):
            yield replace(scenario, lives=(*scenario.lives[:place], life, *scenario.lives[place + 1 :]))
    yield from scenario.smaller()
    yield from _simpler(scenario, type(scenario)(), kept=(*scenario.sizing, "number", "lives"))


def _simpler(found: Any, usual: Any, *, kept: tuple[str, ...] = ()) -> Iterator[Any]:
    """The value with one field as usual, or with a smaller number in it."""
    for one in fields(found):
        value, default = getattr(found, one.name), getattr(usual, one.name)
        if one.name in kept or value == default:
            continue
        yield replace(found, **{one.name: default})
        if is_dataclass(value):
            yield from (replace(found, **{one.name: less}) for less in _simpler(value, default))
        elif type(value) is int and value > 1:
            yield from (replace(found, **{one.name: less}) for less in {value // 2, value - 1})
