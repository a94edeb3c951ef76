"""A checkpoint of an earlier version is read."""

from pathlib import Path

from tests.support.stored import unpack
from training.checkpoints import Checkpoint


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    found = Checkpoint.read(unpack("checkpoint", tmp_path) / "last.pt", arch="tiny", classes=3)
    assert (found.model["weight"].tolist(), found.best, found.options) == ([1.5, -2.0], 0.25, {"lr": 0.1})
    assert (found.loader["epoch"], found.loader["start"]) == (2, 4)
