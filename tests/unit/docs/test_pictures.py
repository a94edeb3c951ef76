"""The pictures of pages are those that the code draws."""

from xml.etree import ElementTree

import pytest

from docs import pictures


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_stored_picture_is_what_the_loaders_orders_give(name: str) -> None:
    stored = (pictures.FOLDER / name).read_text(encoding="utf-8")
    ElementTree.fromstring(stored)
    assert stored == pictures.PICTURES[name](), "run python docs/pictures.py"
