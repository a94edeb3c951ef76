"""The position in an epoch, from which any number of ranks can continue with the next sample. Pure arithmetic.

A state names what was delivered by places of the epoch's global order, which do not depend on ranks. A rank that
delivers in order knows what all ranks have delivered at its step. Out of order it knows only its own samples, and
`merge_states` joins the states of all ranks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.errors import StateError
from loader.order.history import MOST_PLACES, Past, can_be, past_of, without_past
from loader.order.permutation import Sharding
from loader.order.strata import Sampling

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Left:
    """The undelivered rest of an epoch of ``rows`` places: those that are ``pending``, then all from ``start`` on. Its
    indices 0..len-1 are distributed to ranks as the places of a full epoch are.
    """

    rows: int
    start: int = 0
    pending: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.pending) + self.rows - self.start

    def __call__(self, indices: NDArray[np.int64], /) -> NDArray[np.int64]:
        """The places at these indices: int64 in, int64 of the same shape out."""
        places = indices + (self.start - len(self.pending))
        is_pending = indices < len(self.pending)
        if is_pending.any():
            places[is_pending] = np.array(self.pending, dtype=np.int64)[indices[is_pending]]
        return places

    def indices(self, places: NDArray[np.int64], /) -> NDArray[np.int64]:
        """The indices of places, int64 of the same shape; -1 for those that are not left."""
        pending = np.array([*self.pending, -1], dtype=np.int64)  # the last one is no place
        at = np.searchsorted(pending[:-1], places)
        found = np.where(pending[at] == places, at, -1)
        return np.where(places < self.start, found, places + (len(self.pending) - self.start))

    def after(self, end: int, *, late: Iterable[int] = ()) -> "Left":
        """What is left once all indices below ``end`` but the ``late`` ones were delivered."""
        again = self(np.array(list(late), dtype=np.int64)).tolist()
        start = self.start + max(0, end - len(self.pending))
        return Left(self.rows, start, tuple(sorted([*again, *self.pending[end:]])))


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank has delivered, out of order: its own samples below ``end`` but the ``late`` ones."""

    rank: int
    world_size: int
    batch_size: int
    end: int
    late: tuple[int, ...]

    @property
    def is_sound(self) -> bool:
        """Whether a rank can have these numbers."""
        numbers = (self.rank, self.end, *self.late)
        if not all(type(number) is int and 0 <= number <= MOST_PLACES for number in numbers):
            return False
        if not can_be(self.batch_size, self.world_size):
            return False
        return self.rank < self.world_size and all(number < self.end for number in self.late)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The position in an epoch of a split of ``rows`` rows: what is `left` of it."""

    # Without a ``share``, no rank has delivered any of that. With one, this rank has delivered a part of its share, and
    # what others have delivered is not known.

    fingerprint: str
    seed: int
    shuffle: bool
    epoch: int
    global_batch_size: int  # of the ranks that delivered
    rows: int
    start: int = 0
    pending: tuple[int, ...] = ()
    share: Share | None = None
    checksums: str | None = None  # the fingerprint of those that images were compared with; earlier states have none
    sampling: Sampling | None = None  # how classes share the epoch; None if they do not
    past: Past = field(default=(), compare=False)  # the runs that led to it

    @property
    def is_sound(self) -> bool:
        """Whether a split and an epoch can have these numbers."""
        whole = (self.epoch, self.start, self.rows, self.global_batch_size, *self.pending)
        if not all(type(number) is int and 0 <= number <= MOST_PLACES for number in whole):
            return False
        if not (isinstance(self.fingerprint, str) and type(self.seed) is int and type(self.shuffle) is bool):
            return False
        is_left = self.start < self.rows or (self.start == self.rows and bool(self.pending))
        are_pending = all(place < self.start for place in self.pending) and len({*self.pending}) == len(self.pending)
        return is_left and are_pending and self.global_batch_size > 0 and (self.share is None or self.share.is_sound)

    @property
    def left(self) -> Left:
        """The undelivered rest of the epoch, including this rank's share."""
        return Left(self.rows, self.start, self.pending)

    @property
    def dealt(self) -> int:
        """How many samples are left."""
        return len(self.left)

    @property
    def steps(self) -> int:
        """0: what was delivered is not in `left` any more."""
        return 0

    def later(self, steps: int, /) -> "State":
        """The state after so many more batches of all ranks."""
        return self.after(min(steps * self.global_batch_size, self.dealt))

    def after(self, end: int, *, late: Iterable[int] = ()) -> "State":
        """The state once all indices of `left` below ``end`` but the ``late`` ones were delivered."""
        left = self.left.after(end, late=late)
        return replace(self, start=left.start, pending=left.pending, share=None) if len(left) else self.following()

    def following(self) -> "State":
        """The state at the beginning of the next epoch."""
        return replace(self, epoch=self.epoch + 1, start=0, pending=(), share=None)

    def with_past(self, past: Past, /) -> "State":
        """The state with the runs that led to it."""
        return replace(self, past=past)

    def to_dict(self) -> dict[str, Any]:
        """The state as dictionaries, lists, texts and numbers."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        share = self.share and {**asdict(self.share), "late": list(self.share.late)}
        if self.checksums is None:  # as in earlier versions
            del found["checksums"]
        if self.sampling is None:
            del found["sampling"]
        else:
            found["sampling"] = self.sampling.to_dict()
        past = {"past": [run.to_dict() for run in self.past]} if self.past else {}
        return {"format": _FORMAT, **without_past(found), "pending": list(self.pending), "share": share, **past}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], /) -> "State":
        """The state that `to_dict` returned; raises `StateError` for anything else."""
        if not isinstance(found, Mapping):
            raise StateError(f"Wanted a state from state_dict(). Found: {type(found).__name__}")
        if "kind" in found:
            raise StateError("Wanted a state of a split or of class folders. Found: one of shards")
        given = dict(found)
        version = given.pop("format", None)
        if version != _FORMAT:
            raise StateError(f"Wanted a state of format {_FORMAT} from state_dict(). Found: format {version!r}")
        try:
            share = given.pop("share")
            if share is not None:
                share = Share(**{**share, "late": tuple(share["late"])})
            if (sampling := given.pop("sampling", None)) is not None:
                sampling = Sampling.from_dict(sampling)
            past = past_of(given.pop("past", ()), cls.from_dict)
            values = {**given, "pending": tuple(given["pending"]), "share": share, "sampling": sampling, "past": past}
            state = cls(**values)
        except StateError:  # of a run in its past
            raise
        except KeyError as error:
            raise StateError(f"Wanted a state from state_dict(). Found: one without {error}") from None
        except (TypeError, ValueError) as error:
            raise StateError(f"Wanted a state from state_dict(). Found: a damaged one, {error}") from None
        if not state.is_sound:
            raise StateError(f"Wanted a state with places inside its epoch. Found: {state}")
        return state


def joined(parts: Sequence[State], others: Sequence[State]) -> State:
    """The state of all ranks, without a past: of those that have delivered a part of an epoch, out of order, and those
    that have delivered all of their share, so that their state is the beginning of the next epoch. Raises `StateError`.
    """
    shares = [part.share for part in parts if part.share is not None]
    shared = [replace(part, share=None) for part in parts]
    world_size, batch_size = shares[0].world_size, shares[0].batch_size
    is_one = all((share.world_size, share.batch_size) == (world_size, batch_size) for share in shares)
    if not is_one or any(part != shared[0] for part in shared) or any(one != shared[0].following() for one in others):
        raise StateError("Wanted the states of all ranks at one step. Found: states of several epochs or splits")
    ranks = {share.rank for share in shares}
    if len(ranks) < len(shares) or len(shares) + len(others) != world_size:
        raise StateError(
            f"Wanted the states of ranks 0 to {world_size - 1}, each once. "
            f"Found: {len(shares) + len(others)}, of ranks {', '.join(str(share.rank) for share in shares)} among them"
        )
    end, late = _delivered(shared[0].left, shares)
    return shared[0].after(end, late=late)


def _delivered(left: Left, shares: Sequence[Share]) -> tuple[int, list[int]]:
    """One more than the last index that any rank has delivered, and the indices before it that none has. Ranks without
    a share have delivered all of theirs.
    """
    world_size, batch_size = shares[0].world_size, shares[0].batch_size
    known = {share.rank: share for share in shares}
    late: list[int] = []
    ends: list[int] = []
    open_ends: list[tuple[Sharding, int]] = []
    for rank in range(world_size):
        sharding = Sharding(len(left), batch_size, rank, world_size, "PARTIAL")  # without what FILL repeats
        share = known.get(rank)
        own_end = sharding.samples if share is None else min(share.end, sharding.samples)
        if own_end:
            ends.append(int(sharding.own(np.array([own_end - 1]))[0]) + 1)
        if share is not None:
            numbers = np.array([number for number in share.late if number < own_end], dtype=np.int64)
            late += sharding.own(numbers).tolist()
            open_ends.append((sharding, own_end))
    end = max(ends, default=0)
    for sharding, own_end in open_ends:
        # The rank's next samples, up to the step of the last index.
        stop = min(sharding.samples, -(-end // sharding.global_batch_size) * batch_size)
        following = sharding.own(np.arange(own_end, stop, dtype=np.int64))
        late += following[following < end].tolist()
    return end, late
