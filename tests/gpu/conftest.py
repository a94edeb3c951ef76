"""These tests need an NVIDIA GPU, torch with CUDA, and DALI for the CUDA version of the driver."""

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them on machines without a GPU."""
    if not torch.cuda.is_available():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; torch finds none"))
