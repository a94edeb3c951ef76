"""Trainings that read class folders on several ranks, are interrupted, and go on on others; with what each step had.

python -m tests.support.trainings --count 1000     # how many of them their last state replays
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loader
from tests.support.trees import touch

# Epoch, step, rank, and the positions and places of a batch, in their order.
Given = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


@dataclass
class Training:
    """What a training was given, and its last state."""

    folder: loader.Folder
    state: Mapping[str, Any] | None = None
    given: Counter[Given] = field(default_factory=Counter)
    filled: set[tuple[int, int, int]] = field(default_factory=set)  # batches with repeated samples
    lost: set[tuple[int, int, int]] = field(default_factory=set)  # batches of which all samples are missing


def training(numbers: random.Random, root: Path) -> Training:
    """A random training of up to three sources, one after another."""
    rows = numbers.randint(3, 40)
    names = [f"{numbers.randrange(3)}/{number}.png" for number in range(rows)]
    folder = loader.open_folder(touch(root, *names))
    missing = set(numbers.sample(names, numbers.choice((0, 0, numbers.randint(0, rows // 3)))))
    for name in missing:
        (root / name).unlink()
    made = Training(folder)
    usual = {
        "seed": numbers.randrange(3),
        "sampling": (sampling := numbers.choice(("shuffled", "stratified", "balanced"))),
        "shuffle": sampling != "shuffled" or numbers.random() < 0.7,
        "on_missing": "skip" if missing else "raise",
        "max_missing": 1.0,
    }
    try:
        for _ in range(numbers.randint(1, 3)):
            _go_on(made, numbers, usual)
    except loader.MissingImageError:  # a rank has nothing to fill a batch with
        return training(numbers, root / "again")
    return made


def _go_on(made: Training, numbers: random.Random, usual: Mapping[str, Any]) -> None:
    """Read some passes from the last state on, in batches of another size on other ranks."""
    ranks, size = numbers.randint(1, 3), numbers.randint(1, 5)
    policy: Any = numbers.choice(("PARTIAL", "FILL", "DROP"))
    sources = [
        loader.FolderSource(
            made.folder, **usual, batch_size=size, rank=rank, world_size=ranks, last_batch_policy=policy
        )
        for rank in range(ranks)
    ]
    try:
        for source in sources:
            if made.state is not None:
                source.load_state_dict(made.state)
        epoch = sources[0].first_epoch
        for _ in range(numbers.randint(1, 3)):
            # Up to there, all ranks have full batches. None: the whole epoch.
            most = sources[-1].plan.samples(epoch) // size if policy != "DROP" else len(sources[0])
            steps = numbers.choice((None, numbers.randint(0, max(0, most - 1))))
            if policy == "PARTIAL" and usual["on_missing"] == "skip":
                steps = None  # a rank may have no batch at some steps, so ranks would stop at different ones
            for source in sources:
                _read(made, source, epoch, steps)
            epoch += numbers.choice((0, 1, 1, 2)) if steps is not None else 1
        made.state = loader.merge_states([source.state_dict() for source in sources])
    finally:
        for source in sources:
            source.close()


def _read(made: Training, source: loader.FolderSource, epoch: int, steps: int | None) -> None:
    """Read so many batches of an epoch."""
    batches = source.epoch(epoch)
    for number, batch in enumerate(batches):
        at = epoch, batch.step, source.rank
        made.given[*at, *_samples(batch)] += 1
        if batch.repeats:
            made.filled.add(at)
        if batch.repeats == len(batch):
            made.lost.add(at)
        if steps is not None and number + 1 >= steps:
            break
    batches.close()  # type: ignore[attr-defined]


def _samples(batch: loader.Batch | loader.Replayed) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(batch.positions.tolist()), tuple(batch.places.tolist())


def disagreement(made: Training, numbers: random.Random) -> str | None:
    """What the last state says else than what the training was given; None if nothing."""
    assert made.state is not None
    history = loader.History(made.folder, made.state)
    epochs = {epoch: 1 + max(step for one, step, *_ in made.given if one == epoch) for epoch, *_ in made.given}
    batches = [batch for epoch, steps in epochs.items() for batch in history.replay(epoch, range(steps))]
    inexact = {(batch.epoch, batch.step, batch.rank) for batch in batches if not batch.is_exact}
    if history.unknown or not inexact <= made.filled:
        return f"does not know {history.unknown}"
    found = Counter((one.epoch, one.step, one.rank, *_samples(one)) for one in batches)
    found, given = ({one: n for one, n in some.items() if one[:3] not in made.lost} for some in (found, made.given))
    if found != given:
        return f"replays {found} instead of {given}"
    if any((batch.ids != made.folder.ids[batch.positions]).any() for batch in batches):
        return "gives other ids"
    for position in numbers.sample(range(len(made.folder)), 2):
        seen = Counter((one.epoch, one.step, one.rank) for one in history.seen(position))
        wanted = Counter(one[:3] for one, n in given.items() for _ in range(n) if position in one[3])
        if {one: n for one, n in seen.items() if one not in made.lost} != wanted:
            return f"has seen {position} at {seen} instead of {wanted}"
    return None


def main() -> int:
    """Play random trainings, and print how many agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    agreed = 0
    for number in range(count := parser.parse_args().count):
        with tempfile.TemporaryDirectory() as folder:
            found = disagreement(training(random.Random(number), Path(folder)), random.Random(number))
        agreed += found is None
        if found is not None:
            print(f"{number}: {found}", file=sys.stderr)
    print(agreed)
    return 0 if agreed == count else 1


if __name__ == "__main__":
    sys.exit(main())
