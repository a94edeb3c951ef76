"""Workers of a pass agree among themselves which epoch it is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports torch
    from loader._passes import Passes


def new() -> "Passes":
    from loader._passes import Passes

    return Passes()


def begin(passes: "Passes", numbers: list[int], *, of: int, births: int, epoch: int | None = None) -> list[int]:
    """The epochs of workers of a pass that begin in this order; birth ``births`` is that of worker 0."""
    return [passes.begin(number, of, births + number, first_epoch=4, epoch=epoch) for number in numbers]


def test_workers_of_a_pass_agree_on_its_epoch() -> None:
    passes = new()
    assert begin(passes, [2, 0, 1], of=3, births=11) == [4, 4, 4]
    assert begin(passes, [0, 1, 2], of=3, births=11) == [5, 5, 5]  # they live on
    assert begin(passes, [1, 0], of=3, births=14) == [6, 6]  # others, one of which ends before
    assert begin(passes, [2, 0, 1], of=3, births=17) == [7, 7, 7]
    assert begin(passes, [2, 0, 1], of=4, births=20) == [8, 8, 8]
    assert begin(passes, [0], of=0, births=22) == [9]  # no workers
    assert begin(passes, [0], of=0, births=22) == [10]
    assert begin(passes, [1, 0], of=2, births=25) == [11, 11]
    passes.restart(1_000_000_000)
    assert begin(passes, [0, 1], of=2, births=25) == [1_000_000_000] * 2
    passes.restart(3)
    assert begin(passes, [0, 1], of=2, births=25) == [3, 3]
    assert begin(passes, [0, 1], of=2, births=27, epoch=1) == [1, 1]  # a state
    assert begin(passes, [0, 1], of=2, births=29) == [2, 2]


def test_workers_agree_on_the_epoch_despite_processes_started_in_between() -> None:
    passes = new()
    for epoch, births in ((4, [11, 13, 14]), (5, [15, 16, 19]), (6, [20, 23, 24])):
        found = [passes.begin(one, 3, births[one], first_epoch=4, epoch=None) for one in (1, 2, 0)]
        assert found == [epoch] * 3
    last = (1 << 20) - 1
    assert begin(passes, [2, 0, 1], of=3, births=last) == [7, 7, 7]
    assert begin(passes, [1, 0, 2], of=3, births=last + 3) == [8, 8, 8]
