"""One state of all ranks, from the states that each of them gives."""

from collections.abc import Mapping, Sequence
from typing import Any

from loader.errors import StateError
from loader.order.history import merged
from loader.order.state import State, joined
from loader.shards.shard_schedule import ShardState


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of all ranks, taken at the same step, into one from which any number of ranks can continue.

    It knows which samples each rank has left out. Out of order, only it has what all ranks have delivered.

    Args:
        states: The state of each rank, in any order.

    Returns:
        The state for ``load_state_dict`` on every rank.

    Raises:
        StateError: The states are not of the same step, or a rank is missing.
    """
    if not isinstance(states, Sequence):
        raise StateError(f"Wanted a list of the states of all ranks. Found: {type(states).__name__}")
    if not states:
        raise StateError("Wanted the states of all ranks. Found: none")
    are_of_shards = isinstance(states[0], Mapping) and "kind" in states[0]
    parts = [ShardState.from_dict(one) if are_of_shards else State.from_dict(one) for one in states]
    shared = [one for one in parts if isinstance(one, State) and one.share is not None]
    if not shared and any(part != parts[0] for part in parts):
        raise StateError(
            "Wanted the states of all ranks at one step. Found: states of several steps. Take them after the same "
            "batch on all ranks. A rank has no batch at a step of which all its images are left out; with FILL, "
            "all ranks have all steps."
        )
    others = [one for one in parts if isinstance(one, State) and one.share is None]
    found = joined(shared, others) if shared else parts[0]
    return found.with_past(merged([part.past for part in parts])).to_dict()
