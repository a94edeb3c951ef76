"""Figures of a pass: loss, accuracy, and where the time is spent."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

from training.ranks import Ranks

Item = TypeVar("Item")


@dataclass(slots=True)
class Timer:
    """Seconds that a loop waited for its batches, and seconds that it worked on them."""

    data: float = 0.0
    compute: float = 0.0
    first: float = 0.0  # seconds of the first batch, before anything is warm; they are part of ``data``, too

    def over(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The batches; measures the time between them."""
        iterator = iter(batches)
        started = time.perf_counter()
        is_first = True
        for batch in iterator:
            ready = time.perf_counter()
            self.data += ready - started
            if is_first:
                self.first, is_first = ready - started, False
            yield batch
            started = time.perf_counter()
            self.compute += started - ready
        self.data += time.perf_counter() - started


@dataclass(slots=True)
class Scores:
    """Sums over the images of a pass on this rank."""

    images: int = 0
    loss: float = 0.0
    top1: int = 0
    top5: int = 0

    def add(self, logits: torch.Tensor, labels: torch.Tensor, loss: float) -> None:
        """Add a batch: logits ``(b, classes)``, labels int64 ``(b,)``, and its mean loss."""
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        self.images += len(labels)
        self.loss += loss * len(labels)
        self.top1 += int(best[:, 0].sum())
        self.top5 += int(best.sum())


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of a pass over all ranks: means, and images a second of the slowest rank. Lists are by rank."""

    images: int
    loss: float
    top1: float
    top5: float
    images_per_second: float
    data_share: float  # of the time in which ranks waited for data
    data_seconds: list[float]
    compute_seconds: list[float]
    images_per_second_by_rank: list[float]

    @classmethod
    def of(cls, scores: Scores, timer: Timer, ranks: Ranks) -> "Metrics":
        """Join the ranks' figures; every rank must call it."""
        found = ranks.each(
            [scores.images, scores.loss, scores.top1, scores.top5, timer.data, timer.compute, timer.first]
        )
        images, loss, top1, top5 = (sum(one[place] for one in found) for place in range(4))
        data, compute = [one[4] for one in found], [one[5] for one in found]
        seconds = [waited + worked for waited, worked in zip(data, compute, strict=True)]
        warm = sum(one[4] - one[6] for one in found)
        return cls(
            images=int(images),
            loss=loss / max(images, 1),
            top1=top1 / max(images, 1),
            top5=top5 / max(images, 1),
            images_per_second=images / max(*seconds, 1e-9),
            data_share=warm / max(warm + sum(compute), 1e-9),
            data_seconds=data,
            compute_seconds=compute,
            images_per_second_by_rank=[one[0] / max(time, 1e-9) for one, time in zip(found, seconds, strict=True)],
        )

    def __str__(self) -> str:
        by_rank = ""
        if len(self.images_per_second_by_rank) > 1:
            by_rank = f" ({', '.join(f'{rate:,.0f}' for rate in self.images_per_second_by_rank)} by rank)"
        return (
            f"loss {self.loss:.4f}  top-1 {self.top1:.2%}  top-5 {self.top5:.2%}  "
            f"{self.images_per_second:,.0f} images/s{by_rank}, {self.data_share:.1%} of the time for data"
        )
