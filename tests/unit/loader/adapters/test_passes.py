"""Workers of a pass agree on the epoch, or raise."""

import multiprocessing
import os
import pickle
import random
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import loader

if TYPE_CHECKING:  # it imports torch
    from loader.adapters.passes import Ledger, Team


def team(birth: int, *, of: int, seed: int = 0, thread: int = 0, turn: int = 0) -> "Team":
    from loader.adapters.passes import Team

    return Team(seed, of, ("fork", thread, birth), turn)


def begin(ledger: "Ledger", numbers: list[int], *, of: int, births: int, turn: int = 0) -> list[int]:
    """The epochs of workers that begin in this order; ``births`` is the birth of worker 0."""
    return [ledger.begin(team(births, of=of, turn=turn), number, first_epoch=4).epoch for number in numbers]


def test_workers_of_a_pass_agree_on_its_epoch() -> None:
    from loader.adapters.passes import Ledger

    ledger = Ledger()
    assert begin(ledger, [2, 0, 1], of=3, births=11) == [4, 4, 4]
    assert begin(ledger, [0, 1, 2], of=3, births=11, turn=1) == [5, 5, 5]  # they are persistent
    assert begin(ledger, [1], of=3, births=14) == [6]  # a pass that ends early, before the others begin
    assert begin(ledger, [0, 1, 2], of=3, births=17) == [7, 7, 7]
    assert begin(ledger, [2, 0, 1], of=4, births=20) == [8, 8, 8]
    assert ledger.begin(None, 0, first_epoch=4).epoch == 9  # no workers
    ledger.following = 3
    assert begin(ledger, [0, 1], of=2, births=25) == [3, 3]
    resumed = [ledger.begin(team(27, of=2), number, first_epoch=4, epoch=1).epoch for number in range(2)]
    assert resumed == [1, 1]
    assert begin(ledger, [0, 1], of=2, births=29) == [2, 2]


def test_no_two_iterators_mix_whatever_begins_when() -> None:
    for example in range(300):
        check_iterators(random.Random(example))


def check_iterators(rng: random.Random) -> None:
    """Threads start iterators concurrently, with the same base seed. Anything else may be started in between."""
    from loader.adapters.passes import Ledger

    waiting: list[tuple[int, list[tuple[Team, int]]]] = []  # passes, with the workers that have not begun them
    for thread in range(2):
        births = 0
        for _ in range(rng.randint(1, 4)):
            count = rng.randint(1, 4)
            drift, workers = 0, []
            for number in range(count):
                births += 1
                workers.append((births - number, number))
                if drift < count - 1 and rng.random() < 0.3:  # the same thread starts something else
                    drift, births = drift + 1, births + 1
            first = rng.randint(0, count) if rng.random() < 0.3 else 0  # it ends before those below begin
            for turn in range(rng.randint(1, 2)):
                left = [(team(birth, of=count, thread=thread, turn=turn), one) for birth, one in workers[first:]]
                waiting.append((len(waiting), rng.sample(left, len(left))))
    ledger, epochs = Ledger(), dict[int, set[int]]()
    while waiting := [one for one in waiting if one[1]]:
        number, left = rng.choice(waiting)
        worker, place = left.pop()
        epochs.setdefault(number, set()).add(ledger.begin(worker, place, first_epoch=0).epoch)
    assert [len(found) for found in epochs.values()] == [1] * len(epochs)
    assert sorted(min(found) for found in epochs.values()) == list(range(len(epochs)))


def test_a_worker_that_is_missing_or_resumes_elsewhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from loader.adapters import passes as module

    passes = module.Passes()
    passes.confirm(passes.begin(first_epoch=0), timeout=0)  # without workers there is nobody to wait for

    def become(number: int, seed: int = 7) -> None:
        info = SimpleNamespace(id=number, num_workers=2, seed=seed + number)
        monkeypatch.setattr(module, "get_worker_info", lambda: info)
        monkeypatch.setattr(module, "_born", ("fork", 0, 5 + number))
        passes._turns = (0, 0)

    become(0)
    begun = passes.begin(first_epoch=0)
    message = r"all 2 workers .* in epoch 1 within 0\.05 s\. Found: 0; .*call dataset\.set_epoch\(1\) and start again"
    with pytest.raises(loader.DeliveryError, match=message):
        passes.confirm(begun, timeout=0.05)
    become(1, seed=8)  # one of another iterator
    assert passes.begin(first_epoch=0).epoch == 2
    with pytest.raises(loader.DeliveryError, match="Found: 0;"):
        passes.confirm(begun, timeout=0.05)
    become(1)
    with pytest.raises(loader.DeliveryError, match=r"epoch 5 in worker 1.*Found: epoch 1 .*set_epoch\(1\)"):
        passes.begin(first_epoch=0, epoch=5)
    become(1)
    passes.confirm(passes.begin(first_epoch=0), timeout=0)
    passes.confirm(begun, timeout=0)


def test_a_process_killed_under_the_lock_holds_up_nobody() -> None:
    from loader.adapters.passes import Passes

    passes = Passes()
    child = os.fork()
    if not child:
        with passes._ledger() as ledger:
            ledger.following = 9
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [passes.begin(first_epoch=3).epoch for _ in range(2)] == [3, 4]


def _own_epochs(passes: Any, answers: Any) -> None:
    answers.put([passes.begin(first_epoch=0).epoch for _ in range(2)])


def test_processes_started_with_a_dataset_count_passes_of_their_own() -> None:
    """As in ranks that are forked with their parent's dataset, and for pickles made for other purposes."""
    from loader.adapters.passes import Passes

    passes = Passes()
    passes.restart(5)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    ranks = [fork.Process(target=_own_epochs, args=(passes, answers)) for _ in range(2)]
    for rank in ranks:
        rank.start()
    assert [answers.get(timeout=60) for _ in ranks] == [[5, 6]] * 2
    for rank in ranks:
        rank.join()
    assert passes.begin(first_epoch=0).epoch == 5
    assert pickle.loads(pickle.dumps(passes)).begin(first_epoch=0).epoch == 5
