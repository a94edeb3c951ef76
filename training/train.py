"""Train a classifier under torchrun; ``training/train.py --help`` is the manual page."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

if not __package__:  # as a script: this package is not installed
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from formats.command_line import command
from loader import LoaderError
from training import TrainingError
from training.train_options import TrainOptions, parse_args


def run(options: TrainOptions) -> None:
    """Train. Raises `TrainingError`, `loader.LoaderError`, and ImportError without torch."""
    from training.checkpoints import check_outputs
    from training.feeds import open_sources
    from training.ranks import ranks
    from training.trainer import Trainer

    checkpoint = None if options.evaluate else options.checkpoint
    check_outputs(*filter(None, (checkpoint, options.figures, options.trace)))
    with ranks(options.device) as ours, open_sources(options, ours) as (train, val):
        trainer = Trainer(options, ours, train, val)
        with _stopped_by(trainer.stop):
            trainer.run()


@contextmanager
def _stopped_by(stop: Callable[..., None]) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C call this."""
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@command("train.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = parse_args(argv)
    try:
        run(options)
    except LoaderError:  # among them that of a library that the loader misses
        raise
    except ImportError as error:
        remedy = "Install them: pip install 'imagestrata[train]'"
        raise TrainingError(f"Wanted torch and torchvision. Found: {error}. {remedy}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
