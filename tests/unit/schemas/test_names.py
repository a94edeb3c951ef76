"""One rule for names, at every door that takes names as text."""

from collections.abc import Callable

import pytest

from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from schemas import SchemaError, TableName
from schemas.datasets import check_path
from schemas.names import hidden_character

ALLOWED = (
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
    "PDF\u200c\u0647\u0627",  # Persian, after Latin letters
    "\u0db6\u0dca\u200d\u0dbb",  # Sinhala
    "\u0915\u094d\u200d\u0937",  # Hindi
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
    "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire
    "caf\u00e9",
    "cafe\u0301",  # the same, decomposed: another name
    "two words",
)
REFUSED = {
    "ca\u200ct": "U+200C",  # it would look like cat
    "\u200c\u0645": "U+200C",
    "\u0645\u200c": "U+200C",
    "\u0645\u200c\u200c\u0645": "U+200C",
    "\u0645 \u200d\u0645": "U+200D",
    "gpj.\u202etac": "U+202E",
    "a\u2066b": "U+2066",
    "a\u200bb": "U+200B",
    "\ufeffa": "U+FEFF",
    "a\u00a0b": "U+00A0",
    "a\0b": "U+0000",
    "a\nb": "U+000A",
    "\udcff": "U+DCFF",
}


def _ingest(**names: str) -> IngestPlan:
    source = SourcePlan(address="s3://bucket/tree", or_split=names.pop("or_split", ""))
    return IngestPlan(source=source, data_table=TableName("ks", "d"), metadata_table=TableName("ks", "m"), **names)


DOORS: dict[str, Callable[[str], object]] = {
    "a file of a dataset": check_path,
    "a folder of a dataset": lambda name: check_path(f"{name}/1.png"),
    "--dataset": lambda name: _ingest(dataset=name),
    "--split-name": lambda name: _ingest(or_split=name),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_name_is_taken_or_refused_by_the_same_rule_at_every_door(door: str) -> None:
    for name in ALLOWED:
        assert hidden_character(name) is None
        DOORS[door](name)
    for name, character in REFUSED.items():
        assert hidden_character(name) == character
        with pytest.raises((SchemaError, ValueError), match=r"hidden|printable|UTF-8"):
            DOORS[door](name)


@pytest.mark.parametrize(
    "path", ["", ".", "..", "a/../b", "a//b", "/a", "a/", "a\\b", "\u00e9" * 128, "a/" * 2048 + "a"]
)
def test_paths_of_a_dataset_are_relative_plain_and_not_too_long(path: str) -> None:
    with pytest.raises(SchemaError, match="Wanted"):
        check_path(path)
