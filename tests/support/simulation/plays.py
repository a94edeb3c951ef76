"""Scenarios of all kinds, played by number, and made simpler if they break something."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tests.support.simulation.judge import BrokenError, Play
from tests.support.simulation.pushes import PushPlay, PushScenario, push_scenario
from tests.support.simulation.scenarios import Scenario, scenario, simpler
from tests.support.simulation.shards import ShardPlay, ShardScenario, shard_scenario

AnyScenario: TypeAlias = Scenario | ShardScenario | PushScenario

KINDS: tuple[Callable[[int], AnyScenario], ...] = (scenario, shard_scenario, push_scenario)
_PLAYS: dict[type, Callable[[Any], Any]] = {Scenario: Play, ShardScenario: ShardPlay, PushScenario: PushPlay}


def played(found: AnyScenario) -> str | None:
    """What a scenario breaks; None if nothing. Any error but those that are due breaks something."""
    try:
        _PLAYS[type(found)](found).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}" if not isinstance(error, BrokenError) else str(error)
    return None


def shrunk(found: AnyScenario) -> AnyScenario:
    """A simpler scenario that breaks something."""
    while (less := next((one for one in simpler(found) if played(one) is not None), None)) is not None:
        found = less
    return found


def first_broken(
    numbers: Iterable[int], kinds: Iterable[Callable[[int], AnyScenario]] = KINDS
) -> tuple[int, list[AnyScenario], str] | None:
    """Play the scenarios of these numbers until one breaks something. Returns its number, a simpler one that breaks
    something, too, and what; None if none does.
    """
    for number in numbers:
        for kind in kinds:
            if played(kind(number)) is not None:
                short = shrunk(kind(number))
                return number, [short], played(short) or ""
    return None
