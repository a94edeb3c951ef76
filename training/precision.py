"""The precision of a training."""

from collections.abc import Mapping
from typing import Any

import torch

from training.ranks import Ranks

# torch's names of the instructions of x86 and ARM for bfloat16.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")


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
