"""One pass over epochs: fetch tasks read samples in parallel, and batches are delivered.

::

    batchers --take--> fetch tasks, a window of them --put--> batchers --ready--> queue --take()--> consumer
        ^                                                                                        |
        +--------------------------- room in the budget of bytes <-------------------------------+

A fetch task reads one sample after another, so a sample does not cost a task. What was read and what is in flight
(estimated by the mean size) stays within the budget. Only what the consumer waits for may exceed it; otherwise nothing
would move. Everything but `take` and `close` runs on the event loop.

A sample is read until it is here, with its bytes or with an error, which its batch raises unless it is skipped::

                           bytes, or an error that another read cannot mend
    taken ----> reading --------------------------------------------------------> here ----> in a batch
                |  ^  ^---- late: another task reads it, too. The first                ^
    no answer,  |  |        that has bytes or an error cancels the others.             |
    and nobody  v  |                                                                   |
    else reads  pausing -----------------------------------------------------------> given up
                          not here at `timeout`, whether reading or pausing
"""

import asyncio
import os
import queue
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from loader.errors import ClosedError, LoaderError, MissingImageError, UnreachableError, closed
from loader.prefetch.batcher import Batcher, Filled, Sample
from loader.prefetch.fetcher import Fetcher
from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.runtime import WAKE_SECONDS, LoopThread
from loader.prefetch.stats import Meter
from loader.prefetch.window import Window

OnMissing: TypeAlias = Literal["raise", "skip"]

_LOOK_SECONDS = 0.05  # how often late answers are searched


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What the streams of one source share: fetcher, window, retry policy, counters and budget."""

    fetcher: Fetcher
    window: Window
    policy: RetryPolicy
    meter: Meter
    budget: int
    on_missing: OnMissing


class FetchStream:
    """The batches of one epoch after another, for one consumer."""

    def __init__(self, epochs: Iterator[Batcher], thread: LoopThread, context: FetchContext) -> None:
        self._epochs, self._loop, self._context = epochs, thread.loop, context
        self._process = os.getpid()
        self._ready: queue.SimpleQueue[Filled | BaseException | None] = thread.queue()
        self._has_ended = False
        # Everything below is used on the event loop only.
        self._open: deque[Batcher] = deque()
        self._tasks: dict[asyncio.Task[None], Sample] = {}
        self._held = 0
        self._waiting = 0  # batches that are complete and not taken
        self._ahead = 0  # how many epochs are begun and not completely taken, at most 2
        self._is_over = False
        self._over = asyncio.Event()
        self._looking: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    # Called by the consumer.

    def take(self) -> Filled | None:
        """The next batch; None after the last one of an epoch. An error that ended the stream is raised instead of a
        batch.
        """
        if self._process != os.getpid():  # the thread that reads is in the parent only
            raise ClosedError("Cannot read an epoch that began before the fork. Begin another one in this process.")
        if self._has_ended:
            raise closed()
        item = self._wait()
        if isinstance(item, BaseException):
            self._has_ended = True
            raise item
        if item is None:
            self._tell(self._end_epoch)
        else:
            freed = 0
            for sample in item.samples:  # the same sample can be repeated, also in later batches
                freed, sample.size = freed + sample.size, 0
            self._tell(lambda: self._free(freed))
        return item

    def is_usable(self) -> bool:
        """Whether the stream can deliver more batches. It cannot in a forked child, where nothing is read."""
        return not self._has_ended and self._process == os.getpid()

    def close(self) -> None:
        """Stop reading ahead and drop what is in flight, without waiting."""
        self._has_ended = True
        self._tell(self._finish)

    def end(self, reason: BaseException) -> None:
        """Let the consumer get this error after the last batch that has arrived."""
        self._ready.put(reason)

    def _wait(self) -> Filled | BaseException | None:
        with suppress(queue.Empty):
            return self._ready.get_nowait()
        with self._context.meter.waiting():
            while True:
                with suppress(queue.Empty):
                    return self._ready.get(timeout=WAKE_SECONDS)

    def _tell(self, call: Callable[[], object]) -> None:
        if self._process != os.getpid():  # the loop's pipe is the parent's, too
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call)

    # Called on the event loop.

    async def run(self) -> None:
        """Read all epochs. In any case, the consumer gets an end or an error."""
        try:
            self._look()
            self._fill()
            await self._over.wait()
        except asyncio.CancelledError:
            self.end(closed())
        finally:
            self._finish()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        """Start fetch tasks as the window and the budget allow."""
        window = self._context.window
        if self._is_over:
            return
        while len(self._tasks) < window.size:
            sample = self._next()
            if sample is None:
                return
            self._begin(sample)

    def _begin(self, sample: Sample) -> None:
        sample.readers += 1  # before the task runs: the first answer must count all readers
        task = self._loop.create_task(self._read(sample))
        self._tasks[task] = sample
        self._context.meter.in_flight += 1
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._context.meter.in_flight -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._fill()  # tasks that end in the same turn still count each other, and might all end

    def _next(self) -> Sample | None:
        """The next sample, if there is room for it. The next epoch begins when all samples of this one are under
        way.
        """
        try:
            while not self._is_over:
                if not self._open or self._open[-1].is_taken:
                    if self._ahead > 1 or (epoch := next(self._epochs, None)) is None:
                        return None
                    self._ahead += 1
                    self._open.append(epoch)
                    self._emit()  # an epoch without samples ends immediately
                    continue
                epoch = self._open[-1]
                if not self._has_room(is_needed=epoch is self._open[0] and epoch.is_needed):
                    return None
                if (sample := epoch.take()) is not None:
                    sample.epoch = epoch
                return sample
        except Exception as error:  # any error of the order: the consumer must get it
            self._fail(error)
        return None

    def _has_room(self, *, is_needed: bool) -> bool:
        fits = self._held + self._context.window.mean_size * (len(self._tasks) + 1) <= self._context.budget
        return fits or (is_needed and not self._waiting)

    async def _read(self, sample: Sample) -> None:
        """A fetch task: it reads one sample after another, as long as the window has room for it."""
        task = asyncio.current_task()
        assert task is not None
        context = self._context
        read, window, now = context.fetcher.read, context.window, self._loop.time
        while True:
            sent = sample.sent = now()
            sample.begun = sample.begun or sent
            try:
                sample.take(await read(sample.id, sample.position))
            except UnreachableError as error:
                if not await self._try_again(sample, error):
                    return
                continue
            except LoaderError as error:
                sample.error = error
                sample.is_skipped = context.on_missing == "skip" and isinstance(error, MissingImageError)
            else:
                window.answered(sample.size, sent=sent, now=now(), in_flight=len(self._tasks))
            self._arrived(sample, task)
            if len(self._tasks) < window.size:
                self._fill()
            if len(self._tasks) > window.size or (following := self._next()) is None:
                return
            following.readers += 1
            self._tasks[task] = sample = following

    def _arrived(self, sample: Sample, task: asyncio.Task[None] | None) -> None:
        self._held += sample.size
        self._context.meter.held_bytes += sample.size
        sample.is_here = True
        if sample.readers > 1 or task is None:
            for other, theirs in self._tasks.items():
                if theirs is sample and other is not task:
                    other.cancel()
        if not self._is_over and sample.epoch.put(sample):
            self._emit()

    def _emit(self) -> None:
        """Deliver the batches that are complete."""
        while self._open and not self._is_over:
            epoch = self._open[0]
            try:
                for filled in epoch.ready():
                    self._waiting += 1
                    self._ready.put(filled)
            except LoaderError as error:
                self._fail(error)
                return
            if not epoch.is_over:
                return
            self._open.popleft()
            self._ready.put(None)

    async def _try_again(self, sample: Sample, error: UnreachableError) -> bool:
        """Wait a little before a read is repeated; False if another read of the sample is under way or was
        successful.
        """
        context = self._context
        context.window.refused()
        if sample.is_here:
            sample.readers -= 1
            return False
        sample.tries += 1
        sample.error = error
        pause = context.policy.pause(sample.tries)
        if sample.readers > 1:
            sample.readers -= 1
            # Else a cluster that is away would soon use up all hedged reads, and later ones would lack them.
            sample.sent = self._loop.time() + pause
            return False
        sample.sent = float("inf")
        context.meter.retries += 1
        await asyncio.sleep(pause)
        return not sample.is_here

    def _look(self) -> None:
        """Send a hedged read for what is late, and fail what has timed out."""
        if self._is_over:
            return
        self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)
        context, now = self._context, self._loop.time()
        policy, window = context.policy, context.window
        late = policy.late(window)
        soonest = min(late, policy.timeout)
        for sample in list(self._tasks.values()):
            if not self._open:  # that was the end
                return
            if now - sample.begun < soonest or not sample.begun or sample.is_here:
                continue
            if now - sample.begun >= policy.timeout:
                sample.error = self._given_up(sample)
                self._arrived(sample, None)
            elif now - sample.sent > late and policy.may_hedge(window, readers=sample.readers):
                sample.sent = now
                context.meter.second_reads += 1
                self._begin(sample)

    def _given_up(self, sample: Sample) -> UnreachableError:
        context = self._context
        reason = str(sample.error).rpartition("Found: ")[2]
        found = f"{reason} ({sample.tries} times)" if sample.error else "no answer"
        wanted = context.fetcher.wanted(sample.id, sample.position)
        error = UnreachableError(f"Wanted {wanted} within {context.policy.timeout:g} s. Found: {found}")
        error.__cause__ = sample.error
        return error

    def _free(self, count: int) -> None:
        if self._is_over:
            return
        self._held -= count
        self._context.meter.held_bytes -= count
        self._waiting -= 1
        self._fill()

    def _end_epoch(self) -> None:
        self._ahead -= 1
        self._fill()

    def _fail(self, error: BaseException) -> None:
        if not self._is_over:
            self.end(error)
            self._finish()

    def _finish(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._over.set()
        if self._looking is not None:
            self._looking.cancel()
        for task in self._tasks:
            task.cancel()
        self._context.meter.held_bytes -= self._held
        self._held = 0
        self._open.clear()
        self._epochs = iter(())
