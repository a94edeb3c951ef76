"""What a state knows of the past: the runs that led to it, and which samples they left out. Pure arithmetic.

A run is what one source delivered, with one batch size on so many ranks, from one state to another. The images of each
of its batches follow from that. Only samples that were left out, because they are missing or no pictures, have to be
recorded. Each rank knows its own; `merged` joins those of all ranks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeAlias, get_args

from loader.order.permutation import LastBatchPolicy

# A sample that was left out: epoch, batch, and position in the split.
LeftOut: TypeAlias = tuple[int, int, int]
# What fills a batch of which nothing is left: epoch, batch, rank, and the position and the place of the one sample.
Fill: TypeAlias = tuple[int, int, int, int, int]
MOST_LEFT_OUT = 100_000  # samples that a state records; 3 MB of JSON
_MOST_RUNS = 1000  # 600 kB of JSON
# Places, and global batches, are computed in int64: larger numbers are damage. So are more ranks: nobody has a million.
MOST_PLACES, _MOST_RANKS = 1 << 58, 1 << 20


def can_be(batch_size: int, world_size: int) -> bool:
    """Whether ranks can have this batch size and this number; other numbers are damage."""
    are_whole = type(batch_size) is int and type(world_size) is int
    return are_whole and 0 < world_size <= _MOST_RANKS and 0 < batch_size * world_size <= MOST_PLACES


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one source delivered from the state ``begin`` to ``end``, both without a past; ``end`` None: the state that
    has this run.
    """

    begin: Mapping[str, Any]
    end: Mapping[str, Any] | None
    batch_size: int
    world_size: int
    last_batch_policy: LastBatchPolicy
    in_order: bool = True
    # The ranks whose left out samples are known; None: no rank can have left out any.
    known: tuple[int, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()
    fills: tuple[Fill, ...] = ()
    # Whether batches came one after another. Otherwise only begin and end are known.
    is_contiguous: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The run as dictionaries, lists, texts and numbers."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        known = None if self.known is None else list(self.known)
        if not self.fills:  # as in earlier versions
            del found["fills"]
        else:
            found["fills"] = [list(one) for one in self.fills]
        return found | {"known": known, "left_out": [list(one) for one in self.left_out]}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], /) -> Self:
        """The run that `to_dict` returned. Raises TypeError, ValueError or KeyError for anything else."""
        known = found["known"]
        made = cls(**{
            **found,
            "known": None if known is None else tuple(known),
            "left_out": tuple((epoch, step, position) for epoch, step, position in found["left_out"]),
            "fills": tuple((epoch, step, rank, at, place) for epoch, step, rank, at, place in found.get("fills", ())),
        })  # fmt: skip
        numbers = (
            made.batch_size,
            made.world_size,
            *(made.known or ()),
            *(one for some in (*made.left_out, *made.fills) for one in some),
        )
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a run with something other than whole numbers")
        if made.last_batch_policy not in get_args(LastBatchPolicy) or not can_be(made.batch_size, made.world_size):
            raise ValueError("a run with impossible options")
        if not isinstance(made.begin, Mapping) or not isinstance(made.end, Mapping | None):
            raise ValueError("a run without states")
        return made


Past: TypeAlias = tuple[Run, ...]


def past_of(found: Iterable[Mapping[str, Any]], check: Callable[[Mapping[str, Any]], object]) -> Past:
    """The past in a state's dictionary. Raises TypeError, ValueError or KeyError for anything else, and what ``check``
    raises for a state in it.
    """
    past = tuple(map(Run.from_dict, found))
    for number, run in enumerate(past, 1):
        check(without_past(run.begin))
        if run.end is not None:
            check(without_past(run.end))
        elif number < len(past):
            raise ValueError("a run without an end before others")
    return past


def bounded(past: Past) -> Past:
    """The last runs of a past; what came before the first of them is not known."""
    if len(past) <= _MOST_RUNS:
        return past
    kept = past[1 - _MOST_RUNS :]
    return (_unknown_before(kept[0].begin), *kept)


def _unknown_before(state: Mapping[str, Any]) -> Run:
    return Run(begin=state, end=state, batch_size=1, world_size=1, last_batch_policy="PARTIAL", is_contiguous=False)


def closed(past: Past, end: Mapping[str, Any], *, is_begin: bool = False) -> Past:
    """The past of a source that goes on from this state: its last run ended there. If the state is none of the
    beginning and has no past, what came before is not known.
    """
    end = without_past(end)
    if past:
        return past if past[-1].end is not None else (*past[:-1], replace(past[-1], end=end))
    if is_begin:
        return ()
    return (_unknown_before(end),)


def without_past(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state's dictionary, without its past."""
    return {name: value for name, value in state.items() if name != "past"}


def merged(pasts: Sequence[Past]) -> Past:
    """The pasts of all ranks as one; none if they are not of the same runs."""
    if len({tuple(map(_same, past)) for past in pasts}) > 1:
        return ()
    return tuple(_joined(runs) for runs in zip(*pasts, strict=True))


def _same(run: Run) -> str:
    """What the runs of all ranks have in common."""
    return repr(replace(run, known=None, left_out=(), fills=(), end=None).to_dict())


def _joined(runs: Sequence[Run]) -> Run:
    """One run of all ranks, with the samples that any of them left out."""
    ends = [run.end for run in runs]
    if any(end != ends[0] for end in ends):
        # Ranks left a pass at different steps, or out of order, where it is not known what all of them had.
        return replace(runs[0], is_contiguous=False)
    if all(run.known is None for run in runs):
        return runs[0]
    by_ranks = {run.known or (): run for run in runs}
    ranks = Counter(rank for known in by_ranks for rank in known)
    left_out = sorted(one for run in by_ranks.values() for one in run.left_out)
    # Twice the same rank: states of other steps are among them.
    if any(count > 1 for count in ranks.values()) or len(left_out) > MOST_LEFT_OUT:
        return replace(runs[0], known=(), left_out=(), fills=())
    fills = sorted(one for run in by_ranks.values() for one in run.fills)
    return replace(runs[0], known=tuple(sorted(ranks)), left_out=tuple(left_out), fills=tuple(fills))
