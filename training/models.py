"""The model by its name: a torchvision classifier, or what a user's function makes."""

import difflib

import torch
import torchvision
from torch import nn

from training.errors import TrainingError, one_line
from training.named import named


def model_of(arch: str, classes: int, *, size: int) -> nn.Module:
    """A model with random weights: float32 ``(b, 3, size, size)`` in, logits ``(b, classes)`` out. It is tried once.
    Raises `TrainingError` for an unknown name, and for a model with other inputs or outputs.
    """
    model = _made(arch, classes)
    try:
        with torch.inference_mode():
            found = tuple(model.eval()(torch.zeros(2, 3, size, size)).shape)
    except Exception as error:  # any error of the user's code
        raise TrainingError(
            f"Wanted --arch {arch} to take images of --size {size}. Found: {one_line(error)}"
        ) from error
    if found != (2, classes):
        raise TrainingError(f"Wanted --arch {arch} to give (2, {classes}) logits for two images. Found: {found}")
    return model


def _made(arch: str, classes: int) -> nn.Module:
    if ":" in arch:
        function = named(arch, option="--arch")
        try:
            model = function(classes)
        except Exception as error:  # any error of the user's function
            raise TrainingError(
                f"Wanted --arch {arch} to make a model of {classes} classes. Found: {one_line(error)}"
            ) from error
        if not isinstance(model, nn.Module):
            raise TrainingError(f"Wanted --arch {arch} to make a torch.nn.Module. Found: {model!r}")
        return model
    names = torchvision.models.list_models(module=torchvision.models)
    if arch not in names:
        near = ", ".join(difflib.get_close_matches(arch, names, cutoff=0.4)) or ", ".join(names[:5])
        raise TrainingError(
            f"Wanted --arch as a torchvision classifier, or MODULE:FUNCTION. Found: {arch!r}. Similar: {near}"
        )
    # Without auxiliary outputs, so that all models are trained in the same way.
    more = {"aux_logits": False} if arch in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(arch, weights=None, num_classes=classes, **more)
    assert isinstance(model, nn.Module)
    return model
