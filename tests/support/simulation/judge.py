"""Plays scenarios, and judges what was delivered by lists of what each rank must get. Nothing of this comes from the
loader's code but the order of an epoch, which is a function of its number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from loader import Batch, History, LoaderError, MissingImageError, Split, UnreachableError, merge_states
from loader.order.history import without_past
from loader.order.permutation import epoch_order
from loader.order.state import State
from loader.order.strata import Sampling, StratifiedOrder, classes_of
from tests.support.simulation.clock import HangError
from tests.support.simulation.reader import FINGERPRINT, IDS, SEED, Got, Reader, stored
from tests.support.simulation.scenarios import Life, Scenario

_FIRST_READS = 16  # in flight before any size is known
_EVERY = 8  # scenarios whose history is judged: it takes as long as playing them


class BrokenError(AssertionError):
    """A promise that did not hold."""


@dataclass(frozen=True, slots=True)
class Deal:
    """The positions of a batch; the last ones repeat others of the epoch."""

    number: int
    fresh: list[int]
    repeats: list[int]


def dealt(scenario: Scenario, life: Life, order: Sequence[int], left: Sequence[int], rank: int) -> list[Deal]:
    """The batches of a rank, of the places that are left of an epoch's order."""
    size, ranks, found = life.batch_size, life.ranks, []
    first = (scenario.rows - len(left)) // (size * ranks)
    for number, start in enumerate(range(0, len(left), size * ranks), start=first):
        places = left[start : start + size * ranks]
        count, repeats = len(places), []
        if count == size * ranks:
            mine = places[rank * size : (rank + 1) * size]
        elif scenario.policy == "DROP":
            break
        else:
            shares = [count * (one + 1) // ranks - count * one // ranks for one in range(ranks)]
            mine = places[sum(shares[:rank]) : sum(shares[: rank + 1])]
            if scenario.policy == "FILL":
                before = sum(size - share for share in shares[:rank])
                repeats = [(before + one) % scenario.rows for one in range(size - len(mine))]
        if mine or repeats:
            found.append(Deal(number, [order[place] for place in mine], [order[place] for place in repeats]))
    return found


@dataclass(frozen=True, slots=True)
class Traced:
    """A batch that was delivered."""

    epoch: int
    step: int
    rank: int
    positions: list[int]
    repeats: int


class Play:
    """Plays a scenario, life by life."""

    _reader: type[Reader] = Reader
    _fatal: type[LoaderError] = MissingImageError  # the error of what cannot be read

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._stored = self._made()
        self._orders: dict[int, list[int]] = {}
        self.epochs = 0  # that were begun
        self._epoch, self._left = 0, list(range(scenario.rows))  # places of the order that are left of the epoch
        self._at: list[int | None] = []  # the next batch of each reader; None at the end of its epoch
        self._has_batches = False  # whether the epoch had any for a reader
        self._was_empty = False  # whether an epoch had none
        self._steps: int | None = None  # the first batch that not all readers have delivered; None after the epoch
        self._traced: list[Traced] = []  # what counts as delivered, by the states

    def _made(self) -> Any:
        """What is stored, and what the loader must deliver of it."""
        return stored(self.scenario)

    def _split(self) -> Split:
        """What is read."""
        split: Split = self._stored.split
        return split

    def run(self) -> int:
        """Play all lives. Returns how many epochs were begun; raises `BrokenError`."""
        state = None
        for life in self.scenario.lives:
            readers = [
                self._reader(self.scenario, life, self._stored, state, rank=rank, worker=worker)
                for rank in range(life.ranks) for worker in range(life.workers)
            ]  # fmt: skip
            try:
                is_hopeless = self._live(life, readers)
                state = self._state(life, readers)
                for reader in readers:
                    self._check_memory(reader)
            except HangError as error:
                raise BrokenError(f"hangs: {error}") from error
            finally:
                for reader in readers:
                    reader.close()
            for reader in readers:
                stats = reader.source.stats()
                want((stats.held_bytes, stats.in_flight) == (0, 0), f"after the end, {stats} holds something")
            if is_hopeless:
                break
        if state is not None and not self.scenario.number % _EVERY:
            self._judge_history(History(self._split(), state))
        return self.epochs

    def _judge_history(self, history: History) -> None:
        """Compare what the last state knows of the past with what was delivered."""
        scenario = self.scenario
        if not scenario.in_order:
            return self._judge_seen(history)
        asked = sorted({(one.epoch, one.step) for one in self._traced})
        replayed = [one for epoch, step in asked for one in history.replay(epoch, step)]
        found = [(one.epoch, one.step, one.rank, one.positions.tolist()) for one in replayed if one.is_exact]
        is_known = len(found) == len(replayed) and not history.unknown
        # What readers left out is in no state of all ranks if workers read; an epoch without batches may not be read.
        may_lack = bool(scenario.bad) or (scenario.skips and any(life.workers > 1 for life in scenario.lives))
        want(is_known or may_lack or self._was_empty, f"does not know {history.unknown or replayed}")
        for one in self._traced:
            key = (one.epoch, one.step, one.rank, one.positions)
            want(key in found or not is_known, f"replays {found} instead of {one}")
        # Passes that were left early are in the history, too.
        is_all = not any(life.tries for life in scenario.lives) and is_known
        want(not is_all or len(found) <= len(self._traced), f"replays {found} instead of {self._traced}")
        for one in self._traced[:: max(1, len(self._traced) // 4)]:
            if is_known:
                at = (one.epoch, one.step, one.rank)
                where = [(it.epoch, it.step, it.rank) for it in history.seen(one.positions[0])]
                want(at in where, f"has seen {one.positions[0]} at {where}, not at {at}")
        return None

    def _judge_seen(self, history: History) -> None:
        """As `_judge_history`, out of order: whether an image was seen, but not at which step."""
        if self.scenario.bad or history.unknown:  # of a pass that was left, each rank knows only its own part
            return
        delivered = {(one.epoch, p) for one in self._traced for p in one.positions}
        for position in {p for _, p in delivered} | {0}:
            given = {one.epoch for one in history.seen(position)}
            want({epoch for epoch, p in delivered if p == position} <= given, f"has not seen {position}: {given}")

    def _live(self, life: Life, readers: Sequence[Reader]) -> bool:
        """Read the epochs of a life, until it ends. Returns whether another life would end in the same way."""
        for number in range(life.epochs + 1):
            steps = life.steps if number == life.epochs else None
            found = [(self._unit(life, one), one.read(self._epoch, steps)) for one in readers]
            self.epochs += 1
            judge = self._judge_in_order if self.scenario.in_order else self._judge_out_of_order
            for unit, got in found:
                judge(life, unit, got)
                self._judge_error(life, unit, got)
            self._has_batches = any(unit for unit, _ in found)
            self._was_empty |= not self._has_batches
            self._at = [_next(unit, got) for unit, got in found]
            self._steps = min((one for one in self._at if one is not None), default=None)
            self._traced += [
                Traced(self._epoch, batch.step, reader.rank, batch.positions.tolist(), batch.repeats)
                for reader, (_, got) in zip(readers, found, strict=True)
                for batch in got.batches if self._steps is None or batch.step < self._steps
            ]  # fmt: skip
            if self._steps is None:
                self._epoch, self._left = self._epoch + 1, list(range(self.scenario.rows))
                continue
            places = {position: place for place, position in enumerate(self._order())}
            gone = {places[position] for unit, got in found for position in self._gone(unit, got, self._steps)}
            self._left = [place for place in self._left if place not in gone]
            return any(isinstance(got.error, self._fatal) for _, got in found)
        return False

    def _order(self) -> list[int]:
        rows, epoch = self.scenario.rows, self._epoch
        if epoch not in self._orders:
            self._orders[epoch] = self._order_of(rows, epoch)
        return self._orders[epoch]

    def _order_of(self, rows: int, epoch: int) -> list[int]:
        named: dict[str, Any] = {"fingerprint": FINGERPRINT, "seed": SEED, "epoch": epoch}
        if self.scenario.sampling == "stratified":
            first = self.scenario.lives[0]  # the batches with which the order began, whatever the later ones are
            classes = classes_of(np.array(self._stored.labels, dtype=np.int32))
            strata = Sampling("stratified", first.batch_size * first.ranks).strata(classes)
            return StratifiedOrder(strata, **named)(np.arange(rows)).tolist()  # type: ignore[no-any-return]
        order = epoch_order(rows, shuffle=self.scenario.shuffle, **named)
        return list(range(rows)) if order is None else order(np.arange(rows)).tolist()

    def _unit(self, life: Life, reader: Reader) -> list[Deal]:
        """What a reader must deliver of what is left of this epoch."""
        return dealt(self.scenario, life, self._order(), self._left, reader.rank)[reader.worker :: life.workers]

    def _gone(self, unit: Sequence[Deal], got: Got, steps: int) -> set[int]:
        """The positions that are delivered or left out with the batches before number ``steps``."""
        if self.scenario.in_order:
            return {position for deal in unit if deal.number < steps for position in deal.fresh}
        count = sum(batch.step < steps for batch in got.batches)
        delivered = {position for batch in got.batches[:count] for position in _fresh(batch)}
        is_all = got.is_complete and count == len(got.batches)
        return delivered | {*(got.left_out if is_all else got.skipped[count - 1] if count else ())}

    def _judge_in_order(self, life: Life, unit: Sequence[Deal], got: Got) -> None:
        """Compare what was delivered with what had to be."""
        scenario, number, left_out = self.scenario, 0, []
        for deal in unit:
            left_out += [position for position in deal.fresh if position in scenario.bad]
            present = [position for position in (*deal.fresh, *deal.repeats) if position not in scenario.bad]
            if self._is_fatal(deal):
                break
            if not present and scenario.policy == "PARTIAL":
                continue
            if number == len(got.batches):
                want(not got.is_complete, f"lacks {deal} of {unit}")
                break
            batch, skipped = got.batches[number], got.skipped[number]
            number += 1
            self._compare(batch, deal, present)
            want(sorted(skipped) == sorted(left_out), f"leaves out {skipped} until {deal} instead of {left_out}")
        else:
            want(not got.is_complete or sorted(got.left_out) == sorted(left_out), f"leaves out {got.left_out}")
        want(number == len(got.batches), f"delivers {len(got.batches)} batches instead of {number}")

    def _judge_out_of_order(self, life: Life, unit: Sequence[Deal], got: Got) -> None:
        """As `_judge_in_order`, for any order within the epoch."""
        scenario = self.scenario
        wanted = [position for deal in unit for position in deal.fresh]
        seen: set[int] = set()
        for batch in got.batches:
            fresh = _fresh(batch)
            want(len({*fresh}) == len(fresh) and not seen & {*fresh}, f"delivers some of {fresh} twice")
            want({*fresh} <= {*wanted} - scenario.bad, f"delivers {fresh} of {wanted}")
            want(len(batch) <= life.batch_size, f"delivers {len(batch)} samples in a batch")
            if scenario.policy != "PARTIAL":
                want(len(batch) == life.batch_size, f"does not fill a batch: {len(batch)}")
            self._check_samples(batch)
            seen |= {*fresh}
        numbers = [batch.step for batch in got.batches]
        due = [deal.number for deal in unit]
        want(numbers == sorted({*numbers}) and {*numbers} <= {*due}, f"numbers batches {numbers} of {due}")
        want(bool(scenario.bad) or numbers == due[: len(numbers)], f"numbers batches {numbers} of {due}")
        if got.is_complete:
            want(seen == {*wanted} - scenario.bad, f"delivers {sorted(seen)} of {wanted}")
            left_out = sorted({*wanted} & scenario.bad)
            want(sorted(got.left_out) == left_out, f"leaves out {got.left_out} instead of {left_out}")

    def _is_fatal(self, deal: Deal) -> bool:
        """Whether a batch ends the epoch with an error."""
        scenario = self.scenario
        if not scenario.skips:
            return not scenario.bad.isdisjoint((*deal.fresh, *deal.repeats))
        return scenario.max_missing == 0 and not scenario.missing.isdisjoint(deal.fresh)

    def _judge_error(self, life: Life, unit: Sequence[Deal], got: Got) -> None:
        """Whether an epoch could be read to its end, and ended with an error, or the reverse."""
        error, scenario = got.error, self.scenario
        fatal = [deal for deal in unit if self._is_fatal(deal)]
        has_none = scenario.skips and bool(unit) and {*range(scenario.rows)} <= scenario.bad
        want(not got.is_complete or not fatal, f"does not fail, although {fatal[:1]} cannot be read")
        if isinstance(error, self._fatal):
            is_due = bool(fatal) or has_none
        else:
            may_fail = life.may_fail and not scenario.has_copy
            is_due = error is None or (isinstance(error, UnreachableError) and may_fail)
        if not is_due:
            raise BrokenError(f"fails with {type(error).__name__}: {error}") from error

    def _compare(self, batch: Batch, deal: Deal, present: Sequence[int]) -> None:
        """Compare a batch with what it must have."""
        found, count = batch.positions.tolist(), len(present)
        want(batch.step == deal.number, f"gives batch {batch.step} instead of {deal.number}")
        want(found[:count] == [*present], f"delivers {found} instead of {present} in batch {deal.number}")
        fillers = found[count:]
        if self.scenario.policy == "PARTIAL":
            want(not fillers, f"repeats {fillers} in batch {deal.number}")
        else:
            size = len(deal.fresh) + len(deal.repeats)
            # Its own images in turn, or the first one of the epoch that can be read.
            again = present or [next(one for one in self._order() if one not in self.scenario.bad)]
            due = [*islice(cycle(again), size - count)]
            want(fillers == due, f"fills batch {deal.number} with {fillers} instead of {due}")
        fresh = sum(position not in self.scenario.bad for position in deal.fresh)
        want(batch.repeats == len(found) - fresh, f"counts {batch.repeats} repeats in batch {deal.number}")
        self._check_samples(batch)

    def _check_samples(self, batch: Batch) -> None:
        positions = batch.positions.tolist()
        stored = self._stored
        want(batch.images == [stored.images[one] for one in positions], f"delivers wrong bytes of {positions}")
        want(batch.labels.tolist() == [stored.labels[one] for one in positions], f"gives wrong labels {batch.labels}")
        want(batch.ids.tobytes() == b"".join(IDS[one] for one in positions), f"gives wrong ids of {positions}")

    def _state(self, life: Life, readers: Sequence[Reader]) -> dict[str, Any]:
        """The state of all ranks where this life ended, which must have what is left."""
        states = [self._state_of(one, at) for one, at in zip(readers, self._at, strict=True) if not one.worker]
        if self.scenario.in_order:
            alone = [without_past(one) for one in states]
            want(all(one == alone[0] for one in alone), f"ranks give different states: {states}")
            is_of_all = self.scenario.skips and all(one.life.workers == 1 for one in readers)
            state = merge_states(states) if is_of_all else states[0]
        else:
            state = merge_states(states)
        of, given = self._given(state)
        epoch, left = self._epoch, self._left
        if not left:
            epoch, left = self._epoch + 1, list(range(self.scenario.rows))
        known = {}
        if not self.scenario.in_order:  # it is not known with which batch a sample was left out that lies between two
            known = {place for place, position in enumerate(self._order()) if position in self.scenario.bad}
        is_same = of == epoch and {*given} - {*known} == {*left} - {*known}
        # An epoch without batches has ended when it begins.
        is_same |= not self._has_batches and of in (epoch - 1, epoch + 1)
        want(is_same, f"gives the state {(of, given)} instead of {(epoch, left)}")
        self._epoch, self._left = of, given
        return state

    def _given(self, state: Mapping[str, Any]) -> tuple[int, list[int]]:
        """The epoch of a state, and the places that are left of it."""
        found = State.from_dict(state)
        return found.epoch, sorted([*found.pending, *range(found.start, found.rows)])

    def _state_of(self, reader: Reader, at: int | None) -> dict[str, Any]:
        """The state of a rank where all ranks have ended."""
        source, is_alone = reader.source, reader.life.workers == 1
        first = source.first_step(self._epoch)
        steps = first if self._steps is None else self._steps
        is_short = not self.scenario.in_order and at is None and steps > max(first, reader.last)
        # A rank that has taken all its batches, but not the end, does not know whether others took one more.
        is_behind = self.scenario.in_order and self._steps is None and not reader.is_complete
        if is_alone and (at == self._steps or is_short) and not is_behind:
            return source.state_dict()
        return source.state_dict(epoch=self._epoch, steps=steps)

    def _check_memory(self, reader: Reader) -> None:
        """Compare what was held and in flight with the budget, and what is held with what was answered."""
        scenario, life, ledger = self.scenario, reader.life, reader.ledger
        reader.settle()
        stats = reader.source.stats()
        low, high = min(map(len, self._stored.images)), max(map(len, self._stored.images)) + 3
        # What the consumer waits for may exceed it; so do first reads, second reads, and images larger than the mean.
        slack = high * (life.batch_size + _FIRST_READS + stats.second_reads) + life.max_in_flight * (high - low)
        slack += life.max_in_flight * high if scenario.bad else 0
        want(ledger.most <= life.budget + slack, f"holds {ledger.most} bytes, with a budget of {life.budget}")
        is_exact = not (scenario.bad or life.tries or scenario.replaced or stats.second_reads or life.weather.stale)
        if is_exact and scenario.policy != "FILL" and ledger.connections == 1 and not reader.has_failed:
            held = ledger.answered - reader.taken
            want(stats.held_bytes == held, f"holds {stats.held_bytes} bytes, says the loader; {held} are not taken")


def _fresh(batch: Batch) -> list[int]:
    return batch.positions[: len(batch) - batch.repeats].tolist()


def _next(unit: Sequence[Deal], got: Got) -> int | None:
    """The number of the first batch that was not delivered; None after the last one."""
    if got.is_complete:
        return None
    last = got.batches[-1].step if got.batches else -1
    return next((deal.number for deal in unit if deal.number > last), None)


def want(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise BrokenError(otherwise)
