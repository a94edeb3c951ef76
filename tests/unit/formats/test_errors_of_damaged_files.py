"""Damaged files of every format give a result or an error of ours, in bounded time; `make fuzz` reads more of them."""

import pytest

from tests.support.fuzzing.reading import found_in
from tests.support.fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_give_results_or_errors_of_ours(name: str) -> None:
    assert found_in(name, range(100)) == []
