"""What the reference must name is read from the code."""

import re
from pathlib import Path

import pytest

import loader
import loader.shards
from imagestrata import hub

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


@pytest.mark.parametrize("package", [loader, loader.shards, hub], ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference(package: object) -> None:
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"\.\. auto\w+:: (\w+)", text))
    assert set(package.__all__) - documented == set()  # type: ignore[attr-defined]
