"""The model by its name, a torchvision classifier or what a user's function makes, and its precision."""

import difflib
from collections.abc import Mapping
from typing import Any

import torch
import torchvision
from torch import nn

from training import TrainingError
from training.command_line import named, one_line
from training.ranks import Ranks

# torch's names of the instructions of x86 and ARM for bfloat16.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")


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


def has_bfloat16(capabilities: Mapping[str, Any]) -> bool:
    """Whether a CPU with these `torch.cpu.get_capabilities` supports bfloat16."""
    # torch emulates it on others, where a training takes about four times as long as in float32.
    return any(capabilities.get(name) for name in _BFLOAT16)


def mixed_dtype(opt_level: str, ranks: Ranks, *, capabilities: Mapping[str, Any] | None = None) -> torch.dtype | None:
    """The type of mixed precision, for which every rank must call this: float16 on GPUs, bfloat16 on CPUs; None for
    only float32, with O0 and if a rank's CPU lacks bfloat16. ``capabilities``: those of this CPU; None asks torch.
    """
    if opt_level == "O0":
        return None
    if ranks.device.type == "cuda":
        return torch.float16
    if capabilities is None:
        # Older versions of torch do not know them. These train in float32, which is right on any CPU.
        capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return None if ranks.any(not has_bfloat16(capabilities)) else torch.bfloat16
