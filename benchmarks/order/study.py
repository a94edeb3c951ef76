"""What orders do to a training on images with a long tail: a small network on scikit-learn's digits, by seed."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.harness.results import Row, tell
from benchmarks.order.figures import FIGURES
from loader.order.permutation import epoch_order
from loader.order.strata import Sampling, StratifiedOrder, classes_of

BATCH, EPOCHS = 32, 40
RARE = 3  # classes
_HALF, _MOST = 0.6, 120  # each class has 0.6 of the images of the one before; the first has 120
_STEPS_SEED = 1_000
NAMES = ("shuffled", "stratified", "balanced", "WeightedRandomSampler")
"""The orders that are compared; the last one is torch's, with weights of one over the images of a class."""

Scores = Mapping[str, NDArray[np.float64]]
"""By order, the recall of each class by seed, ``(seeds, 10)``."""


def long_tail(seed: int) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[Any], NDArray[np.int32]]:
    """Images and labels to train on, with a long tail, and as many of each class to test on."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    numbers = np.random.default_rng(seed)
    train, test = [], []
    for number, kind in enumerate(numbers.permutation(10)):  # another class is rare with each seed
        of_class = numbers.permutation(np.flatnonzero(labels == kind))
        test.append(of_class[:50])
        train.append(of_class[50:][: max(2, int(_MOST * _HALF**number))])
        labels[of_class] = number + 10  # classes are numbered from common to rare
    labels -= 10
    kept, held = numbers.permutation(np.concatenate(train)), np.concatenate(test)
    return images[kept], labels[kept], images[held], labels[held]


def epochs_of(name: str, labels: NDArray[np.int32], seed: int) -> Iterator[NDArray[np.int64]]:
    """The positions of each epoch."""
    import torch

    rows = len(labels)
    if name == "WeightedRandomSampler":
        weights = 1 / np.bincount(labels)[labels]
        generator = torch.Generator().manual_seed(seed)
        sampler = torch.utils.data.WeightedRandomSampler(weights.tolist(), rows, generator=generator)
        for _ in range(EPOCHS):
            yield np.array(list(sampler), dtype=np.int64)
        return
    classes = classes_of(labels)
    for epoch in range(EPOCHS):
        order: Callable[..., Any] | None = epoch_order(rows, fingerprint="study", seed=seed, epoch=epoch, shuffle=True)
        if name != "shuffled":
            strata = Sampling(name, BATCH).strata(classes)  # type: ignore[arg-type]
            order = StratifiedOrder(strata, fingerprint="study", seed=seed, epoch=epoch)
        assert order is not None
        yield order(np.arange(rows, dtype=np.int64))


def recalls(name: str, seed: int) -> NDArray[np.float64]:
    """Train a network with one hidden layer; return the recall of each class, from common to rare."""
    import torch

    torch.manual_seed(_STEPS_SEED + seed)  # the same first weights for all orders
    images, labels, held, wanted = long_tail(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels).long()
    for positions in epochs_of(name, labels, seed):
        for start in range(0, len(positions), BATCH):
            some = torch.from_numpy(positions[start : start + BATCH])
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(inputs[some]), targets[some]))
            optimizer.step()
    with torch.no_grad():
        found = model(torch.from_numpy(held)).argmax(1).numpy()
    return np.array([(found[wanted == number] == number).mean() for number in range(10)])


def rows_of_study(seeds: int) -> tuple[dict[int, Row], Scores]:
    """The differences between orders, as means over seeds with their 95 % intervals."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is too small for more
    scores: dict[str, NDArray[np.float64]] = {}
    for name in NAMES:
        scores[name] = np.array([recalls(name, seed) for seed in range(seeds)])
        tell(f"{name}: accuracy {100 * scores[name].mean():.1f} %, rarest {100 * scores[name][:, -RARE:].mean():.1f} %")
    torch.set_num_threads(threads)
    rare, whole = (lambda found: found[:, -RARE:].mean(axis=1)), (lambda found: found.mean(axis=1))
    row = partial(_row, scores)
    return {
        7: row(7, "balanced", "shuffled", rare),
        8: row(8, "balanced", "WeightedRandomSampler", rare),
        9: row(9, "balanced", "shuffled", whole),
        10: row(10, "stratified", "shuffled", whole),
    }, scores


def _row(scores: Scores, number: int, ours: str, other: str, of: Callable[[Any], NDArray[np.float64]]) -> Row:
    """A row for a difference of percentages, by seed."""
    mine, theirs = 100 * of(scores[ours]), 100 * of(scores[other])
    difference = mine - theirs
    half = 2.262 * difference.std(ddof=1) / len(difference) ** 0.5  # Student's t, 10 seeds
    note = (
        f"{ours} {mine.mean():.1f} ± {mine.std(ddof=1):.1f} %, {other} {theirs.mean():.1f} ± {theirs.std(ddof=1):.1f} %"
    )
    row = FIGURES.value_row(number, float(difference.mean()), note=note, runs=len(difference))
    interval = (float(difference.mean() - half), float(difference.mean() + half))
    return Row(**{**vars(row), "interval": interval})


def draw(path: Path, scores: Scores) -> Path:
    """Write a PNG with the recall of each class, from common to rare, by order: means and standard deviations."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    counts = [max(2, int(_MOST * _HALF**number)) for number in range(10)]
    for place, name in enumerate(NAMES):
        found = 100 * scores[name]
        at = np.arange(10) + 0.12 * (place - 1.5)
        label = f"{name}: {found.mean():.1f} % on all classes"
        axes.errorbar(at, found.mean(axis=0), found.std(axis=0, ddof=1), fmt="o", capsize=2, markersize=4, label=label)
    axes.set_xticks(range(10), [str(count) for count in counts])
    axes.set_xlabel("training images of the class")
    axes.set_ylabel("recall on 50 test images, %")
    axes.set_title(f"Digits with a long tail, {len(scores[NAMES[0]])} seeds, {EPOCHS} epochs of batches of {BATCH}")
    axes.legend(loc="lower left")
    figure.savefig(path, dpi=120)
    return path
