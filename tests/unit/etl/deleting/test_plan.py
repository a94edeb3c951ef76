"""The options of a run that deletes images."""

import uuid
from typing import Any

import pytest

from etl.deleting.plan import DeletePlan, ForgetPlan
from schemas import TableName

TABLES: dict[str, Any] = {f"{name}_table": TableName("ks", name) for name in ("data", "metadata")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"Wanted one of --ids, --id, --source, --ingest, --where\. Found: none\."),
        ({"where": "true", "ids": (uuid.UUID(int=1),)}, r"Found: --id and --where\."),
        ({"where": " "}, "Wanted a condition for --where. Found: an empty one"),
        ({"source": "s", "reason": " "}, "Wanted a reason, which the history keeps"),
        ({"source": "s", "splits": ("",)}, "Wanted a folder for --split and --cache"),
        ({"source": "s", "count": -1}, "--count of 0 or more"),
        ({"source": "s", "data_table": TableName("ks", "metadata")}, "Wanted two tables"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeletePlan(**{**TABLES, "reason": "r", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"before": "soon"}, "Wanted the number of a run, an ingest id, or a time"),
        ({"before": "3", "data_table": TableName("ks", "metadata")}, "Wanted two tables"),
    ],
)
def test_wrong_options_of_replaced_bytes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ForgetPlan(**{**TABLES, **options})


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ({"ids_file": "ids.txt"}, "the ids in ids.txt"),
        ({"ids": [uuid.UUID(int=1)]}, "these ids"),
        ({"source": "file:/data"}, "the source file:/data"),
        ({"ingest": 3}, "ingest 3"),
        ({"where": "width > 3"}, "--where 'width > 3'"),
    ],
)
def test_messages_name_what_chooses_the_images(options: dict[str, Any], choice: str) -> None:
    assert DeletePlan(**TABLES, reason="r", **options).choice == choice
