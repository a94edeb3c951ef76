"""The model by its name: one of torchvision's classifiers, or what a function of the user's makes."""

import difflib

import torchvision
from torch import nn

from training.errors import TrainingError
from training.named import named


def model_of(arch: str, classes: int) -> nn.Module:
    """A model with random weights: float32 ``(b, 3, size, size)`` in, logits ``(b, classes)`` out.

    Raises `TrainingError` for a name that is none.
    """
    if ":" in arch:
        model = named(arch, option="--arch")(classes)
        if not isinstance(model, nn.Module):
            raise TrainingError(f"Wanted --arch {arch} to make a torch.nn.Module. Found: {model!r}")
        return model
    names = torchvision.models.list_models(module=torchvision.models)
    if arch not in names:
        near = ", ".join(difflib.get_close_matches(arch, names, cutoff=0.4)) or ", ".join(names[:5])
        raise TrainingError(
            f"Wanted --arch as a classifier of torchvision's, or MODULE:FUNCTION. Found: {arch!r}. Near: {near}"
        )
    # Without their second outputs, so that all are trained alike.
    more = {"aux_logits": False} if arch in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(arch, weights=None, num_classes=classes, **more)
    assert isinstance(model, nn.Module)
    return model
