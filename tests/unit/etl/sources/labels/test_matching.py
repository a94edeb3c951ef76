"""The likely cause of differing names."""

import pytest

from etl.sources.labels.matching import likely_cause


@pytest.mark.parametrize(
    ("pairs", "cause"),
    [
        ([("a", "a.jpg")], "The extensions differ."),
        (
            [("a.jpg", "images/a.jpg")],
            "The images are in images/, which is not in the names. Set --root images, or write full paths "
            "into the file.",
        ),
        (
            [("val/a.jpg", "a.jpg")],
            "The names begin with val/. Use the parent folder as SOURCE, or set --split-subdir.",
        ),
        ([("x/a.png", "y/a.jpg")], "The extensions differ. The names begin with x/, but the images are in y/."),
    ],
)
def test_the_cause_is_what_is_different(pairs: list[tuple[str, str]], cause: str) -> None:
    assert likely_cause(pairs) == cause


def test_extensions_are_no_cause_where_they_are_not_compared() -> None:
    assert likely_cause([("val/a", "images/a.jpg")], by_stem=True) == (
        "The names begin with val/, but the images are in images/."
    )
