"""Checkpoints: model, optimiser, and the position of the loader."""

import errno
import glob
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from formats.durability import whole_file
from training import TrainingError

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a training needs to continue. ``loader`` is the state of the training images' source after the last step."""

    arch: str
    classes: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    loader: dict[str, Any]
    best: float
    options: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it in one step: readers see the old one or the new one, complete, also after a power cut."""
        found = {name: getattr(self, name) for name in self.__slots__}
        with whole_file(path, durable=True) as file:
            torch.save({"format": FORMAT, **found}, file)
        place = Path(path)
        for left in place.parent.glob(f".{glob.escape(place.name)}.*"):  # of a training that was killed while saving
            left.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, arch: str, classes: int) -> "Checkpoint":
        """Read a checkpoint, on the CPU, without running any code from it. Raises `TrainingError` for another file, or
        a checkpoint of another model.
        """
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise TrainingError(f"Wanted a checkpoint at {path}. Found: no such file.") from None
        except OSError as error:
            raise TrainingError(f"Wanted a checkpoint at {path}. Found: {error.strerror or error}") from error
        except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
            # torch's own message advises to run the code in the file.
            raise TrainingError(f"Wanted a checkpoint at {path}. Found: another file, or a truncated one") from error
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT or found.keys() != {*cls.__slots__}:
            raise TrainingError(f"Wanted a checkpoint of train.py, of format {FORMAT}, at {path}. Found: another file")
        checkpoint = cls(**found)
        if (checkpoint.arch, checkpoint.classes) != (arch, classes):
            raise TrainingError(
                f"Wanted a checkpoint of {arch} with {classes} classes at {path}. "
                f"Found: {checkpoint.arch} with {checkpoint.classes}"
            )
        return checkpoint


def check_outputs(*paths: str) -> None:
    """Make the folders of output files, and check that they can be written. Raises `TrainingError`."""
    for path in paths:
        place = Path(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            aside = place.with_name(f".{place.name}.{os.getpid()}")
            aside.touch()
            aside.unlink(missing_ok=True)  # ranks on other machines may have the same number
        except OSError as error:
            raise TrainingError(f"Wanted to write {path}. Found: {error.strerror or error}") from error
