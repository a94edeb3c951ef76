"""What a source has begun to read of the next epoch."""

from typing import TypeAlias

from loader.order.schedule import Schedule
from loader.prefetch.stream import Stream
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_stream import ShardStream

AnySchedule: TypeAlias = Schedule | ShardSchedule
AnyStream: TypeAlias = Stream | ShardStream


class Ahead:
    """The stream of an epoch that has ended, which reads the next one already."""

    def __init__(self) -> None:
        self.kept: tuple[AnySchedule, int, AnyStream] | None = None
        """The order, the epoch and what reads it."""
        self.is_useful = True
        """Whether the next epoch is worth reading ahead: not once another one was asked for."""

    def take(self, schedule: AnySchedule, epoch: int) -> AnyStream | None:
        """The stream, if it reads this epoch; another one is dropped."""
        if self.kept is None:
            return None
        its_schedule, its_epoch, stream = self.kept
        if its_schedule is schedule and its_epoch == epoch and stream.is_usable():
            self.kept = None
            return stream
        self.drop()
        self.is_useful &= its_schedule is not schedule
        return None

    def keep(self, schedule: AnySchedule, epoch: int, stream: AnyStream) -> None:
        """Keep a stream that reads this epoch."""
        self.drop()
        self.kept = schedule, epoch, stream

    def drop(self) -> None:
        """Give up what was read."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept[2].close()
