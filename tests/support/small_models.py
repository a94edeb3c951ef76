"""A model and transforms that options name as MODULE:FUNCTION."""

import os
import signal
from typing import Any

import torch
from nvidia.dali import fn, types
from torch import nn


def tiny(classes: int) -> nn.Module:
    """A network that learns shades of grey within seconds."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def other(classes: int) -> nn.Module:
    """A network with one output too many."""
    return tiny(classes + 1)


def no_model(classes: int) -> str:
    """A function that does not return a model."""
    return f"{classes} classes"


def whole(images: Any, *, train: bool, size: int) -> Any:
    """The whole image, resized, from 0 to 1; no random crops, even in training."""
    assert isinstance(train, bool)
    images = fn.resize(images, size=[size, size])
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", std=[255.0] * 3)


class _Stoppable(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.steps = model, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        stop = os.environ.get("STOP_AT_STEP", "")
        is_now = (self.training and str(self.steps) == stop) or (
            not self.training and f"validation {self.steps}" == stop
        )
        if is_now and os.environ.get("RANK", "0") == "0":
            os.kill(os.getpid(), signal.SIGTERM)
        found: torch.Tensor = self.model(images)
        return found


def stoppable(classes: int) -> nn.Module:
    """The same network, which ends the first process in the step that the environment names."""
    return _Stoppable(tiny(classes))
