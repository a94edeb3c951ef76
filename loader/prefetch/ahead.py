"""What a source has read of the next epoch."""

from loader.order.plan import Plan
from loader.prefetch.protocols import Stream


class Ahead:
    """The stream of an epoch that has ended, which already reads the next one."""

    def __init__(self) -> None:
        self.kept: tuple[Plan, int, Stream] | None = None
        """The plan, the epoch and the stream."""
        self.is_useful = True
        """Whether to read the next epoch ahead: not after another one was requested."""

    def take(self, plan: Plan, epoch: int) -> Stream | None:
        """The stream, if it reads this epoch; another one is dropped."""
        if self.kept is None:
            return None
        its_plan, its_epoch, stream = self.kept
        if its_plan is plan and its_epoch == epoch and stream.is_usable():
            self.kept = None
            return stream
        self.drop()
        self.is_useful &= its_plan is not plan
        return None

    def keep(self, plan: Plan, epoch: int, stream: Stream) -> None:
        """Keep a stream that reads this epoch."""
        self.drop()
        self.kept = plan, epoch, stream

    def drop(self) -> None:
        """Drop what was read."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept[2].close()
