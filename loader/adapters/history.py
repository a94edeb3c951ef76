"""Which images a training has seen, and at which step, from a state alone: `History`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.adapters.crops import CROP_AREA, check_crop_area
from loader.adapters.graphs import training_pixels
from loader.batch import Batch
from loader.cassandra.cluster import Cluster, ClusterOptions
from loader.dali import as_pnm, decodable_files
from loader.errors import OptionError, require
from loader.mixed.mixture import Mixture
from loader.options import MOST_SHOWN, check_bools, check_int
from loader.order.buckets import buckets_of
from loader.order.draws import Draws
from loader.order.history import Run
from loader.order.plan import Plan
from loader.order.schedule import Schedule
from loader.order.state import State
from loader.shards.pieces import locations_of
from loader.shards.shard_schedule import ShardSchedule, ShardState
from loader.shards.shard_set import Shards
from loader.sources import classes_of_split
from loader.splits import Split

if TYPE_CHECKING:
    import PIL.Image

_ROWS_AT_ONCE = 1 << 20
_MOST_EPOCHS = 1 << 20  # that are searched for an image: seconds
_LARGEST = 4096  # pixels of a crop that is shown


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """The samples that one rank was given at one step.

    Attributes:
        run: The number of the run, from 0: each source that continued from a state began a new one.
        epoch: The number of the epoch.
        step: The number of the batch in the epoch.
        rank: The number of the rank.
        positions: Positions in the split, int64 ``(b,)``, in the order of the batch.
        places: Places in the order of the epoch, int64 ``(b,)``, as in `Batch`.
        ids: UUIDs, uint8 ``(b, 16)``, big-endian; ``(0, 16)`` for shards, which do not list their ids.
        is_exact: Whether these are the samples of the batch. Otherwise they are those that the order has for it: out
            of order, samples come up to 4,096 places earlier or later, and it may not be known which were left out.
    """

    run: int
    epoch: int
    step: int
    rank: int
    positions: NDArray[np.int64]
    places: NDArray[np.int64]
    ids: NDArray[np.uint8]
    is_exact: bool

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch that had an image.

    Attributes:
        run: The number of the run, from 0.
        epoch: The number of the epoch.
        step: The number of the batch in the epoch.
        rank: The rank that had it.
        is_exact: Whether it was this batch. Otherwise it was one before or after, or it is not known whether the image
            was left out.
    """

    run: int
    epoch: int
    step: int
    rank: int
    is_exact: bool


class History:
    """What was delivered on the way to a state, on all ranks: which images at which step, and which step an image.

    Nothing is logged for this. The order of an epoch is computed, and a state names the runs that led to it, with
    their batch sizes and numbers of ranks, and the samples that were left out. So one state of the last step is enough
    for a whole training, however often it was interrupted. A rank knows only which samples it has left out itself:
    join the states of all ranks with `merge_states` if images may be left out.

    A run begins when a source is made or loads a state, and when a pass does not follow what was read before. Where
    only the caller knows what was delivered, with a DALI pipeline or torch's workers, all batches before the ``epoch``
    and ``steps`` of `Source.state_dict` count as delivered.

    Args:
        split: The split, class folders or shards that the source read.
        state: A state of the source, or of one of its iterators.
        buckets: Those of the source, if it had any.

    Raises:
        OptionError: The source had buckets, and there are none, or others than integers.
        StateError: The state is of another split or other buckets, or of one rank with out-of-order delivery.
    """

    def __init__(
        self, split: Split | Shards, state: Mapping[str, Any], *, buckets: NDArray[np.integer[Any]] | None = None
    ) -> None:
        self._split = split
        self._plan = _plan_of(split, state, buckets)
        loaded = self._plan.going_on(state).loaded
        assert loaded is not None
        self._loaded, self._runs = loaded, loaded.past

    def __repr__(self) -> str:
        return f"History({self._split!r}, {len(self._runs)} runs)"

    @property
    def delivered(self) -> tuple[int, int]:
        """Where the state is: its epoch, and how many images of it were delivered."""
        loaded = self._loaded
        images = self._plan.whole.rows - loaded.dealt
        if isinstance(loaded, ShardState):
            images += min(loaded.dealt, loaded.steps * loaded.batch_size * loaded.world_size)
        return loaded.epoch, images

    @property
    def runs(self) -> int:
        """How many runs led to the state."""
        return len(self._runs)

    @property
    def unknown(self) -> list[str]:
        """What is not known, in words: earlier states without a history, passes that were read at the same time."""
        found = []
        for number, run in enumerate(self._runs):
            if not _is_known(run):
                end = run.end or {}
                found.append(
                    f"run {number}: the batches before step {self._steps_of(run, end)} of epoch {end['epoch']}"
                )
            elif run.known is not None and (missing := sorted({*range(run.world_size)} - {*run.known})):
                ranks = ", ".join(map(str, missing))
                found.append(f"run {number}: which samples were left out on ranks {ranks}")
        return found

    def replay(self, epoch: int, steps: int | range) -> list[Replayed]:
        """Which samples the batches of an epoch had.

        Args:
            epoch: The number of the epoch.
            steps: One step, or a range of them.

        Returns:
            The batches of all ranks, by run, step and rank. A step that two runs have had, with other batch sizes, is
            there twice. A step that was not delivered on the way to the state is not there.

        Raises:
            OptionError: Numbers below 0.
        """
        check_int("epoch", epoch, 0)
        if not isinstance(steps, range):
            steps = range(check_int("steps", steps, 0), steps + 1)
        if steps and min(steps[0], steps[-1]) < 0:
            raise OptionError(f"Wanted steps of at least 0. Found: {steps}")
        steps = steps if steps.step > 0 else steps[::-1]
        found: list[Replayed] = []
        for number, run, plan, epochs, _ in self._delivering if steps else ():
            if epoch in epochs:
                first = plan.first_step(epoch)
                start = max(first, steps[0])
                start += (steps[0] - start) % steps.step
                stop = min(first + plan.delivered(epoch, run.end or {}), steps[-1] + 1)
                for step in range(start, stop, steps.step):
                    found += self._batches(number, run, epoch, step)
        return found

    def state_before(self, batch: Replayed, /) -> dict[str, Any]:
        """The state from which a source continues with a batch, to read it again as it was.

        The source needs the batch size and the ranks of the batch's run; with others, it begins with the same images.

        Args:
            batch: One that `replay` returned.

        Returns:
            A state for ``load_state_dict``, without a history.

        Raises:
            OptionError: It is no batch of this history.
        """
        if not isinstance(batch, Replayed) or batch.run >= self.runs:
            raise OptionError(f"Wanted a batch of this history's replay(). Found: {batch!r}")
        return self._plans[batch.run].after(batch.epoch, steps=batch.step).with_past(()).to_dict()

    def seen(self, image: UUID | str | int) -> list[Seen]:
        """The batches that had an image.

        Args:
            image: Its id, or its position in the split; for shards, the position only.

        Returns:
            The batches, by run, epoch and step; none if the state's training has not seen the image.

        Raises:
            OptionError: The split has no such image, or the history has over a million epochs.
        """
        found = {one for position in self._positions_of(image) for one in self._seen(position)}
        return [Seen(*one, is_exact=self._is_exact(self._runs[one[0]], one[3])) for one in sorted(found)]

    def _seen(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """The runs, epochs, steps and ranks that had a position."""
        spans = [epochs for *_, epochs, _ in self._delivering]
        every = range(min((one.start for one in spans), default=0), max((one.stop for one in spans), default=0))
        if len(every) > _MOST_EPOCHS:
            raise OptionError(f"Wanted the history of at most {_MOST_EPOCHS:,} epochs. Found: {len(every):,}")
        # All runs have one order: a source that goes on from a state goes on with its order.
        at, places = self._plan.places_of(every, position)
        for number, run, plan, epochs, end in self._delivering:
            yield from self._filled(number, position, end)
            own = slice(*np.searchsorted(at, (epochs.start, epochs.stop)).tolist())
            if not run.in_order:
                yield from self._about(number, at[own], places[own], position)
                continue
            left_out = self._left_out[number]
            for epoch, step, rank in plan.where(at[own], places[own]):
                if (epoch, step) < end and position not in left_out.get((epoch, step), ()):
                    yield number, epoch, step, rank

    def _filled(self, number: int, position: int, end: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
        """The batches of a run that were left without samples and repeat this position instead."""
        in_order = self._runs[number].in_order
        for (epoch, step, rank), (filling, _) in self._fills[number].items():
            if filling == position and ((epoch, step) < end or (epoch == end[0] and not in_order)):
                yield number, epoch, step, rank

    def show(
        self,
        batches: Replayed | Sequence[Replayed],
        *,
        size: int | None = None,
        crop_area: tuple[float, float] = CROP_AREA,
        mirror: bool = True,
        cluster: Cluster | None = None,
        **where: Unpack[ClusterOptions],
    ) -> "PIL.Image.Image":
        """Read the images of batches and show the first 64 on one picture, as `Split.show` does.

        Args:
            batches: What `replay` returned, or one of it.
            size: None for the images as they are stored. Otherwise the crops that ``ClassificationIterator(source,
                size=size, train=True)`` has given, with its other two options.
            crop_area: As given to it.
            mirror: As given to it.
            cluster: Where to read images, as in `Split.show`.
            **where: The arguments of `Cluster` instead of ``cluster``.

        Returns:
            A ``PIL.Image.Image``, which has ``save``.

        Raises:
            OptionError: The history is of shards, which have no positions to choose by, or there are no images.
            MissingExtraError: Pillow, or with ``size`` DALI, is not installed.
            MissingImageError: An image of the split is missing.
        """
        require("PIL", package="pillow", purpose="show()")
        if size is None and (crop_area != CROP_AREA or mirror is not True):
            raise OptionError("Wanted size with crop_area and mirror. Found: none")
        if size is not None:
            check_int("size", size, 1, _LARGEST)
            check_crop_area(crop_area)
            check_bools(mirror=mirror)
        batches = [batches] if isinstance(batches, Replayed) else batches
        if not isinstance(batches, Sequence) or not all(isinstance(one, Replayed) for one in batches):
            raise OptionError(f"Wanted batches of replay(). Found: {batches!r}")
        samples = [
            (batch.epoch, place, position)
            for batch in batches
            for place, position in zip(batch.places.tolist(), batch.positions.tolist(), strict=True)
        ][:MOST_SHOWN]

        def cropped(read: Batch) -> Batch:
            assert size is not None
            images: list[bytes] = []
            for epoch, group in groupby(zip(samples, read.images, strict=True), key=lambda one: one[0][0]):
                images += self._cropped(epoch, [*group], size=size, crop_area=crop_area, mirror=mirror)
            return replace(read, images=images)

        change = {} if size is None else {"change": cropped}
        return self._split.views.sheet(self._split, [position for *_, position in samples], cluster, where, **change)

    def _cropped(self, epoch: int, group: Sequence[Any], **options: Any) -> list[bytes]:
        """Crops as files; an image that cannot be decoded stays as it is."""
        images, places = [image for _, image in group], np.array([place for (_, place, _), _ in group], dtype=np.int64)
        files, sizes = decodable_files(images)
        draws = Draws(seed=self._plan.seed, epoch=epoch, places=places, sizes=sizes)
        found = training_pixels(files, draws, **options)
        return [image if one is None else as_pnm(one) for image, one in zip(images, found, strict=True)]

    def _about(
        self, number: int, epochs: NDArray[np.int64], places: NDArray[np.int64], position: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """About where a run that was read out of order had a position, without what FILL repeats."""
        plan, end = self._plans[number], State.from_dict(self._runs[number].end or {})
        assert isinstance(plan, Schedule)
        is_delivered = (epochs < end.epoch) | (end.left.indices(places) < 0)
        found = plan.where(epochs[is_delivered], places[is_delivered], repeated=False)
        for epoch, some in groupby(sorted(found), key=lambda one: one[0]):
            # The batch of a sample that was left out is another one than that of its place.
            gone = self._left_out[number].get((epoch, None), []).count(position)
            yield from ((number, *one) for one in [*some][: -gone or None])

    @cached_property
    def _left_out(self) -> list[dict[tuple[int, int | None], list[int]]]:
        """By run, the positions that were left out of batches, by epoch and step; out of order, of epochs."""
        found: list[dict[tuple[int, int | None], list[int]]] = [{} for _ in self._runs]
        for run, own in zip(self._runs, found, strict=True):
            for epoch, step, position in run.left_out:
                own.setdefault((epoch, step if run.in_order else None), []).append(position)
        return found

    @cached_property
    def _fills(self) -> list[dict[tuple[int, int, int], tuple[int, int]]]:
        """By run, the position and the place that fill a batch of which nothing is left, by epoch, step and rank."""
        return [{(epoch, step, rank): (at, place) for epoch, step, rank, at, place in run.fills} for run in self._runs]

    @cached_property
    def _plans(self) -> list[Plan]:
        return [self._plan.of_run(run) for run in self._runs]

    @cached_property
    def _delivering(self) -> list[tuple[int, Run, Plan, range, tuple[int, int]]]:
        """The runs of which it is known what they have delivered, with their plans on rank 0, the epochs of which they
        have batches, and the epoch and the number of the batch at which they ended.
        """
        found = []
        for number, (run, plan) in enumerate(zip(self._runs, self._plans, strict=True)):
            if _is_known(run):
                assert run.end is not None  # `closed` has set it
                last = int(run.end["epoch"])
                done = plan.delivered(last, run.end)
                # Out of order, less than a batch of all ranks may have been delivered.
                epochs = range(run.begin["epoch"], last + (done > 0 or not run.in_order))
                found.append((number, run, plan, epochs, (last, plan.first_step(last) + done)))
        return found

    def _batches(self, number: int, run: Run, epoch: int, step: int) -> Iterator[Replayed]:
        gone = self._left_out[number].get((epoch, step if run.in_order else None), [])
        for rank, (positions, places) in self._plans[number].on_all_ranks(epoch, step):
            kept = np.flatnonzero(~np.isin(positions, gone))
            lost = len(positions) - len(kept)
            if lost and run.last_batch_policy != "PARTIAL" and len(kept):
                kept = np.resize(kept, run.batch_size)
            if len(kept) or run.last_batch_policy != "PARTIAL":  # a batch of which nothing is left is not delivered
                # A small epoch, of which FILL has a sample several times in a batch, is filled in another way if an
                # image is missing than if it is no picture.
                is_known = run.last_batch_policy == "PARTIAL" or not lost or len({*places.tolist()}) == len(places)
                positions, places = positions[kept], places[kept]
                if (fill := self._fills[number].get((epoch, step, rank))) is not None:
                    positions, places = (np.full(run.batch_size, one, dtype=np.int64) for one in fill)
                is_known &= len(positions) > 0
                is_exact = (is_known or fill is not None) and self._is_exact(run, rank)
                yield Replayed(number, epoch, step, rank, positions, places, self._ids(positions), is_exact)

    def _is_exact(self, run: Run, rank: int) -> bool:
        return run.in_order and (run.known is None or rank in run.known)

    def _steps_of(self, run: Run, end: Mapping[str, Any]) -> int:
        # Out of order, a rank that has left a pass knows only its own share of it.
        whole = {name: value for name, value in end.items() if name != "share"} | {"share": None}
        return self._plan.going_on(whole).first_step(int(end["epoch"])) if end else 0

    def _ids(self, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        if isinstance(self._split, Shards):
            return np.empty((0, 16), dtype=np.uint8)
        return np.asarray(self._split.ids[positions])

    def _positions_of(self, image: UUID | str | int) -> list[int]:
        """The position of an image; in a mixture, one in each split that has it."""
        rows = len(self._split)
        if isinstance(image, bool):
            raise OptionError(f"Wanted the id of an image, or its position. Found: {image!r}")
        if isinstance(image, (int, np.integer)):
            image = int(image)
            if not 0 <= image < rows:
                raise OptionError(f"Wanted a position from 0 to {rows - 1} of {self._split!r}. Found: {image}")
            return [image]
        if isinstance(self._split, Shards):
            raise OptionError(f"Wanted the position of a sample of {self._split!r}. Found: the id {image}")
        try:
            wanted = np.frombuffer((image if isinstance(image, UUID) else UUID(image)).bytes, dtype=np.uint8)
        except (ValueError, AttributeError, TypeError):
            raise OptionError(f"Wanted the id of an image, a UUID. Found: {image!r}") from None
        starts = self._split.starts.tolist() if isinstance(self._split, Mixture) else [0, rows]
        found = [_first(self._split.ids, wanted, range(*span)) for span in pairwise(starts)]
        if positions := [one for one in found if one is not None]:
            return positions
        raise OptionError(f"Wanted an image of {self._split!r}. Found: {image}, which is not in it")


def _first(ids: NDArray[np.uint8], wanted: NDArray[np.uint8], places: range) -> int | None:
    """The first of these places that has an id."""
    for start in range(places.start, places.stop, _ROWS_AT_ONCE):
        is_it = (ids[start : min(start + _ROWS_AT_ONCE, places.stop)] == wanted).all(axis=1)
        if is_it.any():
            return start + int(np.argmax(is_it))
    return None


def _is_known(run: Run) -> bool:
    """Whether it is known what a run has delivered: not if ranks left a pass, out of order, each with its own share."""
    return run.is_contiguous and (run.end or {}).get("share") is None


def _plan_of(split: Split | Shards, state: Mapping[str, Any], buckets: NDArray[np.integer[Any]] | None) -> Plan:
    """The plan of the sources that could continue from a state."""
    if isinstance(split, Shards):
        found = ShardState.from_dict(state)
        return ShardSchedule(
            fingerprint=split.fingerprint,
            pieces=np.array([one.samples for one in locations_of(split)], dtype=np.int64),
            streams=found.streams, mix=found.mix, seed=found.seed, shuffle=found.shuffle,
            batch_size=found.batch_size, rank=0, world_size=found.world_size, last_batch_policy=found.last_batch_policy,
        )  # fmt: skip
    if not isinstance(split, Split):
        raise OptionError(f"Wanted a split, class folders or shards. Found: {split!r}")
    known = State.from_dict(state)
    sampling, classes = known.sampling, None
    if sampling is not None and sampling.name == "bucketed":
        if buckets is None:
            raise OptionError(
                "Wanted the buckets of the source that the state is of. Found: none. "
                "Use loader.History(split, state, buckets=...): the commands have no such option."
            )
        sampling, classes = buckets_of(buckets, rows=len(split), batch=sampling.batch)
    elif sampling is not None:
        classes = classes_of_split(split)
    rows = len(split) if sampling is None or classes is None else sampling.rows(classes)
    return Schedule(
        fingerprint=split.fingerprint, rows=rows, seed=known.seed, shuffle=known.shuffle,
        batch_size=known.global_batch_size, rank=0, world_size=1, last_batch_policy="PARTIAL",
        sampling=sampling, classes=classes,
    )  # fmt: skip
