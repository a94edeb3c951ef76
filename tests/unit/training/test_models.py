"""Mixed precision is used if it is faster."""

from typing import Any

import pytest
import torch

from training.models import has_bfloat16, mixed_dtype
from training.ranks import Ranks

CPU, GPU = (Ranks(0, 1, torch.device(name)) for name in ("cpu", "cuda"))
AVX2 = {"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": False}


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (AVX2, False),
        (AVX2 | {"avx512_bf16": True}, True),
        (AVX2 | {"amx_bf16": True}, True),
        ({"architecture": "aarch64", "neon": True, "bf16": False}, False),
        ({"architecture": "aarch64", "neon": True, "bf16": True}, True),
        ({}, False),
    ],
)
def test_bfloat16_is_found_in_the_capabilities_of_a_cpu(capabilities: dict[str, Any], expected: bool) -> None:
    assert has_bfloat16(capabilities) is expected


def test_a_cpu_without_bfloat16_computes_in_float32() -> None:
    assert mixed_dtype("O2", CPU, capabilities=AVX2) is None
    assert mixed_dtype("O1", CPU, capabilities=AVX2) is None
    assert mixed_dtype("O2", CPU, capabilities=AVX2 | {"avx512_bf16": True}) is torch.bfloat16
    assert mixed_dtype("O0", CPU, capabilities=AVX2 | {"avx512_bf16": True}) is None
    assert mixed_dtype("O2", GPU, capabilities=AVX2) is torch.float16


def test_torch_names_the_capabilities_of_this_cpu() -> None:
    if not hasattr(torch.cpu, "get_capabilities"):
        assert mixed_dtype("O1", CPU) is None
        pytest.skip("this version of torch names none")
    assert mixed_dtype("O1", CPU) is (torch.bfloat16 if has_bfloat16(torch.cpu.get_capabilities()) else None)
    assert "architecture" in torch.cpu.get_capabilities()
