"""Which process of a job this is: as given, as torch.distributed has it, as the environment says."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from loader import OptionError
from loader._ranks import ranks


def alone(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Nothing but these variables says who we are."""
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_arguments_take_precedence_over_torch_and_torch_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    assert ranks() == (0, 1)
    alone(monkeypatch, RANK="2", WORLD_SIZE="3")
    assert ranks() == (2, 3)
    torch = SimpleNamespace(is_available=lambda: True, get_rank=lambda: 4, get_world_size=lambda: 5)
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    for torch.is_initialized, wanted in ((lambda: False, (2, 3)), (lambda: True, (4, 5))):
        assert ranks() == wanted
    assert ranks(6, 7) == (6, 7)


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        ({"RANK": "0"}, ()),
        ({"WORLD_SIZE": "2"}, ()),
        ({"RANK": "first", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ()),
        ({}, (0,)),
        ({}, (None, 1)),
        ({}, (2, 2)),
        ({}, (-1, 2)),
        ({}, (0, 0)),
        ({}, (0, 1.0)),
    ],
)
def test_invalid_ranks_and_world_sizes_are_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: tuple[Any, ...]
) -> None:
    alone(monkeypatch, **environment)
    with pytest.raises(OptionError, match=r"Wanted (rank|world_size) .*Found: "):
        ranks(*given)
