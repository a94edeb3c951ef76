"""What it costs that crops follow from seed, epoch and place, and whether a sample always has the same pixels."""

import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import loader
from benchmarks.harness.consumers import Answer, Order, Recorder, connect, random_by_dali, source_of
from benchmarks.harness.loader_fixture import PICTURES, LoaderFixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import Run, describe
from benchmarks.order.figures import FIGURES

_SIZE, _THREADS = 224, 2
Pixels = dict[tuple[int, int], str]


def decode_at_random(order: Order) -> Answer:
    """As `benchmarks.harness.consumers.decode`, with DALI's own random numbers."""
    with source_of(order) as source:
        connected, recorder = connect(source), Recorder(order)
        graph = partial(random_by_dali, size=order["size"])
        batches = loader.GenericIterator(source, graph, names=["images", "labels"], num_threads=order["threads"])
        arrays = ((batch["images"], batch["labels"]) for batch in batches)
        labels = recorder.take_decoded(arrays, size=order["size"])
        return recorder.answer({"labels": labels}, connected=connected)


def rows_of_crops(fixture: LoaderFixture) -> dict[int, Row]:
    """Alternating epochs with numbers of ours and of DALI's."""
    fixture.write_all(PICTURES)
    consumers = {"ours": "harness.consumers:decode", "DALI's": "order.crops:decode_at_random"}
    rows = fixture.sizes.decoded

    def epoch(consumer: str, seeds: Iterator[int]) -> Run:
        return fixture.run(consumer, PICTURES, rows, size=_SIZE, threads=_THREADS, seed=next(seeds))

    # Another seed for each run: windows of one epoch are up to 2 % larger than those of another, as are their costs.
    once = {name: partial(epoch, consumer, itertools.count()) for name, consumer in consumers.items()}
    for warm in once.values():
        warm()
    # More pairs than elsewhere: runs of one contender differ by 2 %, which is all that the target allows.
    turns = 2 * fixture.sizes.many_pairs + 1
    runs = in_turn(turns, once, told=lambda name, run: f"{name}: {describe([run])}")
    note = "; ".join(f"{name} {describe(found)}" for name, found in runs.items())
    note += f"; {_SIZE} pixels, {_THREADS} threads"
    return {14: FIGURES.ratio_row(14, runs["ours"], runs["DALI's"], by=attrgetter("rate"), note=note)}


def rows_of_resumes(folder: Path, trainings: int) -> dict[int, Row]:
    """Random trainings with one resume, compared with an undisturbed one image by image."""
    tell(f"{trainings:,} trainings with a resume")
    numbers, tree = random.Random(0), folder / "pictures"
    for _, label, data in PICTURES.rows(np.arange(300, dtype=np.int64)):
        (place := tree / str(label % 5)).mkdir(parents=True, exist_ok=True)
        (place / f"{label:06}.jpg").write_bytes(data)
    opened = loader.open_folder(tree)
    equal = total = 0
    for _ in range(trainings):
        wanted, found = _compared(opened, numbers)
        equal += sum(found.get(sample) == digest for sample, digest in wanted.items())
        total += len(wanted)
    note = f"{total:,} samples of {trainings} trainings: ranks, batch sizes, threads, seeds, samplings, one resume"
    return {15: FIGURES.value_row(15, equal / total, note=note)}


def _compared(folder: loader.Folder, numbers: random.Random) -> tuple[Pixels, Pixels]:
    """The pixels of an undisturbed training, and those of one that went on from its state in the middle."""
    usual: dict[str, Any] = {"seed": numbers.randrange(9), "shuffle": numbers.random() < 0.8}
    if numbers.random() < 0.3:
        usual = {"seed": usual["seed"], "sampling": numbers.choice(("stratified", "balanced"))}
    shares = [(numbers.randint(1, 3), numbers.randint(1, 40)) for _ in range(2)]
    together = shares[0][0] * shares[0][1]
    # The order of a sampling depends on the global batch.
    wanted, _ = _pixels(folder, ranks=1, batch_size=together if "sampling" in usual else 32, threads=1, options=usual)
    found: Pixels = {}
    state: Mapping[str, Any] | None = None
    for (ranks, size), stop in zip(shares, (numbers.randint(0, len(folder) // together), None), strict=True):
        threads = numbers.randint(1, 4)
        more, state = _pixels(
            folder, ranks=ranks, batch_size=size, threads=threads, options=usual, state=state, stop=stop
        )
        found |= more
    return wanted, found


def _pixels(
    folder: loader.Folder,
    *,
    ranks: int,
    batch_size: int,
    threads: int,
    options: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    stop: int | None = None,
) -> tuple[Pixels, Mapping[str, Any]]:
    """The digests of the samples of two epochs on all ranks, from a state on, up to so many batches; and the state."""
    found: Pixels = {}
    for rank in range(ranks):
        share = {"batch_size": batch_size, "rank": rank, "world_size": ranks}
        with loader.FolderSource(folder, **share, **options) as source:  # type: ignore[arg-type]
            batches = loader.ClassificationIterator(source, size=64, train=True, num_threads=threads)
            if state is not None:
                batches.load_state_dict(state)
            for images, _ in itertools.islice(itertools.chain(batches, batches), stop):
                assert batches.given is not None
                for place, image in zip(batches.given.places.tolist(), images, strict=True):
                    found[batches.given.epoch, place] = hashlib.sha256(image.tobytes()).hexdigest()
            reached = batches.state_dict()
    return found, reached
