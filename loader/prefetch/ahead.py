"""What a source has begun to read of the next epoch."""

from loader.order.plan import Plan
from loader.prefetch.protocols import Stream


class Ahead:
    """The stream of an epoch that has ended, which reads the next one already."""

    def __init__(self) -> None:
        self.kept: tuple[Plan, int, Stream] | None = None
        """The plan, the epoch and what reads it."""
        self.is_useful = True
        """Whether the next epoch is worth reading ahead: not once another one was asked for."""

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
        """Give up what was read."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept[2].close()
