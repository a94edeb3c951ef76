"""The file of a run that adds labels."""

from pathlib import Path
from typing import Any

import pytest

from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from formats.stores.storage import Storage
from schemas import TableName, image_id

NO_SPARK: Any = None


def test_a_path_is_that_of_an_image_with_or_without_its_split_folder() -> None:
    image = image_id("d", b"train", b"cat/1.png").bytes
    for path in ("cat/1.png", "train/cat/1.png"):
        found = relabelling.ids_of_paths([path], dataset="d", splits=["train", ""])
        assert (path, image) in found
        assert (path, image_id("d", b"", path.encode()).bytes) in found


@pytest.mark.parametrize("name", ["history", "sharpness_v1", "vectors_v2_index"])
def test_a_label_view_does_not_take_the_table_of_something_else(name: str) -> None:
    tables = {f"{name}_table": TableName("ks", name) for name in ("data", "metadata")}
    with pytest.raises(ValueError, match=f"Wanted another name for a label view .* Found: '{name}'"):
        RelabelPlan(**tables, labels="votes.csv", view=name)


def test_a_label_file_may_be_in_the_root_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "votes.csv").write_text("path,label\n")
    monkeypatch.setattr(relabelling, "driver_storage", lambda _, folder: Storage(f"{tmp_path}{folder}"))
    tables = {f"{name}_table": TableName("ks", name) for name in ("data", "metadata")}
    plan = RelabelPlan(**tables, labels="/votes.csv")
    assert len(relabelling.digest_of_labels(NO_SPARK, plan)) == 64
