"""Work that is begun ahead of where its results are used."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(
    items: Iterable[Item],
    start: Callable[[Item], "Future[Made]"],
    *,
    most: int,
    size: Callable[[Item], int] = lambda item: 0,
    most_bytes: float = math.inf,
) -> Iterator[tuple[Item, Made]]:
    """Items with their results, in order. At most so many items and bytes are in progress, and always one item."""
    running: deque[tuple[Item, Future[Made]]] = deque()
    under_way = 0

    def oldest() -> tuple[Item, Made]:
        nonlocal under_way
        item, future = running.popleft()
        under_way -= size(item)
        return item, future.result()

    try:
        for item in items:
            while running and under_way + size(item) > most_bytes:
                yield oldest()
            running.append((item, start(item)))
            under_way += size(item)
            if len(running) >= most:
                yield oldest()
        while running:
            yield oldest()
    finally:  # also if the consumer stops early: what has not begun must not delay the end of the process
        for _, future in running:
            future.cancel()
