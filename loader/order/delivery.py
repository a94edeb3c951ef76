"""Where each reader of a source is, for states: its plan, and the batch that it was given last. No I/O."""

import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from loader.errors import OptionError, StateError
from loader.order.history import MOST_LEFT_OUT, Fill, LeftOut, Run, bounded, without_past
from loader.order.plan import Plan, PlanState

# What of an epoch a rank has delivered, out of order: its samples below the first number, without the others.
Delivered: TypeAlias = tuple[int, Sequence[int]]

# A position: an epoch, its first batch that was not delivered (None: its first one), and out of order, what was.
_At: TypeAlias = tuple[int, int | None, Delivered | None]

Between: TypeAlias = Literal["delivered", "nothing", "unknown"]

_MARKS = 1024  # recent batches for which we know what was delivered with them, out of order


class Position:
    """Where one reader, an iterator or a dataset over the source, or the source's own loop, is: at the pass that is
    open, or else at the one that was read last. While several are open, no position describes it, and `state` raises.
    """

    def __init__(self, plan: Plan, readers: "Readers") -> None:
        self._readers = readers
        self._newest = 0  # the number of the newest pass
        self._open: dict[int, _At] = {}  # where the passes are that have begun and not ended
        self.is_used = False  # true once a pass has begun, or a state was loaded
        self.may_leave_out = readers.may_leave_out
        self._at: _At | None
        self._begun: PlanState | None  # where the run began; None: where the plan begins
        self._left_out: list[LeftOut]  # in the run, in their order; once for each place that an image has in a batch
        self._fills: dict[tuple[int, int], Fill]  # in the run, by epoch and batch
        self._has_forgotten: bool  # whether there were too many
        self._is_contiguous: bool
        self._start(plan)

    @property
    def is_unknown(self) -> bool:
        """Whether only the caller knows what is delivered."""
        return self._at is None

    def load(self, plan: Plan) -> None:
        """Begin anew, in another plan. Passes of the old one end at their next batch."""
        self._start(plan)
        self._touch()

    def begin(self, epoch: int) -> int:
        """Begin a pass over an epoch; returns its number."""
        self._touch()
        self._follow(epoch)
        self._left_out = [one for one in self._left_out if one[0] != epoch]  # the pass leaves them out again
        self._fills = {at: one for at, one in self._fills.items() if at[0] != epoch}
        self._has_read = True
        self._newest += 1
        self._at = self._open[self._newest] = epoch, None, None
        return self._newest

    def end(self, number: int) -> None:
        """Record that a pass has ended, or was left."""
        self._open.pop(number, None)

    def note(self, epoch: int, steps: int | None, delivered: Delivered | None = None, *, of: int | None = None) -> None:
        """Record that the batches of an epoch before ``steps`` were delivered (None: those that it began with), by the
        pass number ``of`` (None: the newest one that is open, if any).
        """
        self._touch()
        if not self._open and self._at is not None and epoch != self._at[0]:
            self._follow(epoch)
        self._at = epoch, steps, delivered
        number = next(reversed(self._open), 0) if of is None else of
        if number in self._open:
            self._open[number] = self._at

    def leave(self, *, is_elsewhere: bool = False) -> None:
        """Record that from now on only the caller knows what is delivered, because DALI or workers read ahead. With
        ``is_elsewhere``, other processes read, so skipped samples are not recorded here.
        """
        self._has_read = not is_elsewhere
        self._touch()
        self._at = None

    def check(self, plan: Plan) -> None:
        """Raise `StateError` if a state was loaded since a pass with this plan has begun."""
        if plan is not self.plan:
            raise StateError(
                "Wanted the next batch of a pass. Found: a state that was loaded since the pass began. "
                "Begin a new pass (with DALI, define a new pipeline) to continue from the state."
            )

    def state(self) -> PlanState:
        """The state after what was delivered. Raises `OptionError` if that is not known."""
        if self._at is None:
            raise OptionError(
                "Wanted epoch and steps, which say what has left your pipeline. "
                "Found: neither. DALI and workers read ahead, so the source cannot know."
            )
        if len(self._open) > 1:
            raise OptionError(
                f"Wanted the position of one pass. Found: {len(self._open)} passes that have begun and not ended. "
                "End the others (close() or del), or give each a source of its own."
            )
        (at,) = self._open.values() or [self._at]  # another pass may have ended since
        return self.recorded(state_after(self.plan, *at))

    def leave_out(self, epoch: int, step: int, position: int) -> None:
        """Record that a sample of a batch was left out."""
        if (epoch, step) in self._fills:  # the sample was only repeated there, to fill the batch
            return
        self._left_out.append((epoch, step, position))
        if len(self._left_out) > MOST_LEFT_OUT:
            self._left_out.clear()
            self._fills.clear()
            self._has_forgotten = True

    def fill(self, epoch: int, step: int, position: int, place: int) -> None:
        """Record what fills a batch of which nothing is left."""
        self._fills[epoch, step] = epoch, step, self.plan.rank, position, place

    def recorded(self, state: PlanState, *, between: Between = "delivered") -> PlanState:
        """A state with its past: the runs of the loaded state, and the run that has led from there to it. ``between``
        says what is known of what lies between the position of this reader and a later state.
        """
        loaded, begin = self.plan.loaded, self._begin
        past = (*(() if loaded is None else loaded.past), *self._ended)
        last = None if self._at is None else state_after(self.plan, *self._at)
        if between != "delivered" and last is not None and _progress(last) < _progress(state):
            past = past if last == begin else (*past, self._run(begin, last))
            gap = replace(self._run(last, None), is_contiguous=False)
            return state.with_past(bounded((*past, gap) if between == "unknown" else past))
        if state == begin and self._is_contiguous and (past or state.epoch == 0):  # nothing was delivered since
            return state.with_past(past)
        run = self._run(begin, self._end_before_loaded(begin, state))
        if _progress(state) < _progress(begin):  # as the caller says
            run = replace(run, is_contiguous=False)
        return state.with_past(bounded((*past, run)))

    @property
    def _begin(self) -> PlanState:
        """Where the run began."""
        return self.plan.after(self.plan.first_epoch) if self._begun is None else self._begun

    def _follow(self, epoch: int) -> None:
        """End the run if a pass does not follow what was delivered last."""
        if self._open:
            self._is_contiguous = False
            return
        begun, begin = self._begin, self.plan.after(epoch)
        # If only the caller knows what was delivered, it is not known up to here.
        last = begin if self._at is None else state_after(self.plan, *self._at)
        is_known = self._at is not None and self._is_contiguous
        end = self._end_before_loaded(begun, last)
        if is_known and last == begin and end is None:
            return
        if last != begun:
            self._ended.append(replace(self._run(begun, end or last), is_contiguous=is_known))
        self._begin_run(begin)

    def _end_before_loaded(self, begin: PlanState, state: PlanState) -> PlanState | None:
        """Where a run from ``begin`` to the loaded state ended, if others have read what the loaded state lacks of its
        epoch; otherwise None.
        """
        loaded = self.plan.loaded
        if loaded is None or begin.epoch >= loaded.epoch or state != self.plan.after(loaded.epoch):
            return None
        end = replace(self.plan, loaded=None).after(loaded.epoch)
        return None if end == loaded else end

    def _begin_run(self, begin: PlanState | None) -> None:
        self._begun = begin
        self._is_contiguous = True
        self._left_out, self._fills = [], {}
        self._has_forgotten = False

    def _run(self, begin: PlanState, end: PlanState | None) -> Run:
        plan = self.plan
        known = None
        if self.may_leave_out:
            known = (plan.rank,) if self._has_read and not (self.is_part or self._has_forgotten) else ()
        return Run(
            begin=without_past(begin.to_dict()),
            end=None if end is None else without_past(end.to_dict()),
            batch_size=plan.batch_size,
            world_size=plan.world_size,
            last_batch_policy=plan.last_batch_policy,
            in_order=self._readers.in_order,
            known=known,
            left_out=tuple(self._left_out) if known else (),
            fills=tuple(self._fills.values()) if known else (),
            is_contiguous=self._is_contiguous,
        )

    def _start(self, plan: Plan) -> None:
        self.plan = plan
        self._begin_run(None)
        self._ended: list[Run] = []  # since the state was loaded
        self._has_read = False  # whether this process reads; otherwise it does not know what was left out
        self.is_part = False  # whether it has read a part of the batches only
        self._open.clear()
        self._at = plan.first_epoch, None, None

    def reload(self, plan: Plan) -> None:
        """As `load`, for all readers together. After `leave`, what is delivered stays unknown."""
        self.is_used = self.is_unknown
        self._start(plan)
        if self.is_used:
            self._at = None

    def _touch(self) -> None:
        self.is_used = True
        self._readers.last = self


class Readers:
    """All readers of a source."""

    def __init__(self, plan: Plan, *, in_order: bool = True, may_leave_out: bool = False) -> None:
        self.in_order, self.may_leave_out = in_order, may_leave_out
        self.own = Position(plan, self)  # the source's own loop
        self.last = self.own  # the reader that was given a batch last
        self._others: set[Position] = set()

    def add(self, owner: object) -> Position:
        """The position of a new reader, which counts until its owner is garbage-collected."""
        made = Position(self.own.plan, self)
        self._others.add(made)
        weakref.finalize(owner, self._others.discard, made).atexit = False
        return made

    def load(self, plan: Plan) -> None:
        """Let all readers begin anew in this plan."""
        for one in (self.own, *self._others):
            one.reload(plan)
        self.last = next((one for one in (self.own, *self._others) if one.is_used), self.own)

    def only(self) -> Position:
        """The one reader that is in use. Raises `OptionError` if there are several."""
        found = self._in_use()
        if unknown := [one for one in found if one.is_unknown]:
            return unknown[0]
        if len(found) > 1:
            raise OptionError(
                f"Wanted the position of a source with one reader. Found: {len(found)} readers, each with a position "
                "of its own. Use state_dict() of the iterator, or give epoch and steps."
            )
        return found.pop()

    @property
    def is_alone(self) -> bool:
        """Whether there is one reader only."""
        return len(self._in_use()) == 1

    def any(self) -> Position:
        """A reader in use. Raises `OptionError` if they have different plans."""
        found = self._in_use()
        if len({id(one.plan) for one in found}) > 1:
            raise OptionError(
                "Wanted one plan for all readers of a source. Found: iterators that have loaded different states. "
                "Give each iterator a source of its own."
            )
        return max(found, key=lambda one: one is self.last)

    def _in_use(self) -> set[Position]:
        return {self.last, *(one for one in (self.own, *self._others) if one.is_used)}


class Marks:
    """Out of order: what was delivered with each recent batch, for callers that say how many they have used."""

    def __init__(self) -> None:
        self._marks: OrderedDict[tuple[int, int], Delivered] = OrderedDict()
        self._live: Counter[int] = Counter()
        self._mixed: set[int] = set()

    def begin(self, epoch: int) -> None:
        """Record that an epoch is being read; another order of arrival replaces that of an earlier time."""
        if self._live[epoch]:
            self._mixed.add(epoch)
        else:
            self._mixed.discard(epoch)
            self._marks = OrderedDict((at, one) for at, one in self._marks.items() if at[0] != epoch)
        self._live[epoch] += 1

    def end(self, epoch: int) -> None:
        """Record that the reading of an epoch has ended."""
        self._live[epoch] -= 1

    def put(self, epoch: int, steps: int, delivered: Delivered) -> None:
        """Record what is delivered once ``steps`` batches of an epoch are."""
        self._marks[epoch, steps] = delivered
        if len(self._marks) > _MARKS:
            self._marks.popitem(last=False)

    def get(self, epoch: int, steps: int) -> Delivered:
        """What is delivered once ``steps`` batches of an epoch are. Raises `OptionError` if it is not known."""
        if epoch in self._mixed:
            raise OptionError(
                f"Wanted one reading of epoch {epoch}, because batches come out of order. Found: several at once. "
                "Use state_dict() of the iterator, or read in order."
            )
        if (found := self._marks.get((epoch, steps))) is None:
            raise OptionError(
                f"Wanted one of the last {_MARKS:,} batches that were read, because batches come out of order. "
                f"Found: {steps} of epoch {epoch}"
            )
        return found


def state_after(plan: Plan, epoch: int, steps: int | None, delivered: Delivered | None) -> PlanState:
    """The state after the batches of an epoch before number ``steps``; out of order, with what this rank delivered."""
    if delivered is None or steps is None or steps == plan.first_step(epoch):
        return plan.after(epoch, steps=steps)
    return plan.after_samples(epoch, end=delivered[0], late=delivered[1])


def _progress(state: PlanState) -> tuple[int, int, int]:
    """A number for a position that grows with what is delivered."""
    return state.epoch, -state.dealt, state.steps
