"""Work ahead of its results, bounded in number and bytes."""

from concurrent.futures import Future

import pytest

from formats.read_ahead import ahead


@pytest.mark.parametrize(
    ("most", "most_bytes", "in_progress"), [(1, 99, [1, 1, 1, 1]), (3, 99, [3, 3, 2, 1]), (9, 5, [2, 1, 1, 1])]
)
def test_results_come_in_order_and_few_are_in_progress(most: int, most_bytes: int, in_progress: list[int]) -> None:
    begun: list[Future[int]] = []

    def start(size: int) -> "Future[int]":
        begun.append(Future())
        begun[-1].set_result(-size)
        return begun[-1]

    results = ahead([2, 3, 4, 9], start, most=most, size=lambda size: size, most_bytes=most_bytes)
    found = [(pair, len(begun) - number) for number, pair in enumerate(results)]
    assert found == list(zip([(2, -2), (3, -3), (4, -4), (9, -9)], in_progress, strict=True))


def test_what_has_not_begun_is_cancelled_with_its_consumer() -> None:
    first: Future[int] = Future()
    first.set_result(1)
    begun: list[Future[int]] = [first, Future(), Future()]
    results = ahead(range(3), begun.__getitem__, most=3)
    assert next(results) == (0, 1)
    results.close()
    assert [one.cancelled() for one in begun] == [False, True, True]
