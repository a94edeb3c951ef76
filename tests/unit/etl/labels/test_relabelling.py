"""The file of a run that adds labels."""

from pathlib import Path
from typing import Any

import pytest

from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from formats.stores.storage import Storage
from schemas import TableName

NO_SPARK: Any = None


def test_a_label_file_may_be_in_the_root_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "votes.csv").write_text("path,label\n")
    monkeypatch.setattr(relabelling, "driver_storage", lambda _, folder: Storage(f"{tmp_path}{folder}"))
    tables = {f"{name}_table": TableName("ks", name) for name in ("data", "metadata")}
    plan = RelabelPlan(**tables, labels="/votes.csv")
    assert len(relabelling.digest_of_labels(NO_SPARK, plan)) == 64
