"""Random histories, each from its number, and the shortest part of one that still breaks something."""

import random
from collections.abc import Iterable, Sequence

from tests.support.histories.jobs import World
from tests.support.histories.machine import (
    PATHS,
    Alone,
    BrokenError,
    Delete,
    Drop,
    Featurize,
    Ingest,
    Machine,
    Operation,
    Put,
    Relabel,
    Repair,
    Together,
    Train,
    Wait,
)

FLAGS = ("resume", "overwrite", "prune", "restore", "keep")
TTLS = (None, 0, 1000, 3000)


def history(number: int, *, length: int = 10) -> list[Operation]:
    """The history of a number: files of two sources, often a first ingest, and then up to ``length`` operations."""
    numbers = random.Random(number)
    found: list[Operation] = [Put("one", path, "1", "a") for path in PATHS if numbers.random() < 0.7]
    found += [Put("two", path, "2", "b") for path in PATHS if numbers.random() < 0.2]
    expires = numbers.random() < 0.3
    if numbers.random() < 0.7:
        found.append(Alone(Ingest("one", ttl=numbers.choice(TTLS) if expires else None)))
    trains = numbers.randint(1, length) if numbers.random() < 0.4 else None
    for place in range(numbers.randint(2, length)):
        if place == trains:
            found.append(Train(numbers.random() < 0.5))
        kind = numbers.random()
        source, path = "one" if numbers.random() < 0.8 else "two", numbers.choice(PATHS)
        if kind < 0.1:
            found.append(Drop(source, path))
        elif kind < 0.35:
            found.append(Put(source, path, numbers.choice("123"), numbers.choice("abc")))
        elif expires and kind < 0.45:
            found.append(Wait(numbers.choice((500, 1500, 4000))))
        elif kind < 0.8:
            found.append(_alone(numbers, expires=expires))
        else:
            turns = tuple(numbers.randint(0, 1) for _ in range(numbers.randint(0, 40)))
            first = _alone(numbers, expires=expires)
            found.append(Together(first, _alone(numbers, expires=expires), turns))
    return found


def _alone(numbers: random.Random, *, expires: bool) -> Alone:
    kill = numbers.randint(0, 12) if numbers.random() < 0.4 else None
    kind = numbers.random()
    if kind < 0.1:
        paths = sorted(numbers.sample(PATHS, numbers.choice((1, 1, 2))))
        return Alone(Relabel(tuple((path, numbers.choice("abc")) for path in paths)), kill)
    if kind < 0.25:
        return Alone(numbers.choice((Featurize(), Featurize(True), Repair(), Repair(), Repair("one"))), kill)
    if kind < 0.5:
        return Alone(Delete(tuple(sorted(numbers.sample(PATHS, numbers.choice((1, 1, 1, 2)))))), kill)
    flags = tuple(flag for flag in FLAGS if numbers.random() < 0.35)
    continues = numbers.randint(0, 3) if numbers.random() < 0.15 else None
    retried = numbers.randint(0, 2) if numbers.random() < 0.2 else 0
    ttl = numbers.choice(TTLS) if expires and numbers.random() < 0.8 else None
    flags += ("groups",) if expires and numbers.random() < 0.3 else ()
    return Alone(Ingest("one" if numbers.random() < 0.8 else "two", flags, retried, continues, ttl), kill)


def played(history: Sequence[Operation], *, is_one_keyspace: bool = True) -> str | None:
    """What a history breaks; None if nothing."""
    try:
        Machine(World(is_one_keyspace=is_one_keyspace)).play(history)
    except BrokenError as error:
        return str(error)
    return None


def shrunk(history: Sequence[Operation], *, is_one_keyspace: bool = True) -> list[Operation]:
    """The operations of a history that are needed to break something."""
    left, place = list(history), 0
    while place < len(left):
        shorter = left[:place] + left[place + 1 :]
        if played(shorter, is_one_keyspace=is_one_keyspace) is not None:
            left = shorter
        else:
            place += 1
    return left


def first_broken(numbers: Iterable[int]) -> tuple[int, list[Operation], str] | None:
    """Play these histories until one breaks something. Returns its number, the operations that it needs, and what it
    breaks; None if none does. Every third history has data and metadata in two keyspaces.
    """
    for number in numbers:
        is_one = number % 3 != 0
        if played(history(number), is_one_keyspace=is_one) is not None:
            short = shrunk(history(number), is_one_keyspace=is_one)
            return number, short, played(short, is_one_keyspace=is_one) or ""
    return None
