"""The stored notebooks: executed, small, without errors and local paths."""

import json
from pathlib import Path

import pytest

from tests.support import notebooks


@pytest.mark.parametrize("path", notebooks.BOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_with_their_outputs(path: Path) -> None:
    import nbformat  # takes seconds, which every process of a run would spend

    text = path.read_text(encoding="utf-8")
    book = json.loads(text)
    nbformat.validate(book)
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert {output["output_type"] for cell in code for output in cell["outputs"]} <= {
        *("stream", "display_data", "execute_result"),
    }
    assert any(cell["outputs"] for cell in code)
    assert any("image/png" in kind for cell in notebooks.kinds(book) for kind in cell)
    assert all(not cell["metadata"] for cell in book["cells"])
    assert not notebooks.machine_paths(text)
    assert len(text) < 300_000


def test_the_tour_has_six_notebooks() -> None:
    assert [path.stem for path in notebooks.BOOKS] == [
        "01_ingest_and_explore",
        "02_splits",
        "03_train_from_cassandra",
        "04_hiding_latency",
        "05_features_and_lineage",
        "06_what_did_the_model_see",
    ]


def test_paths_of_a_machine_are_found() -> None:
    assert notebooks.machine_paths('"list file:///tmp/x/build", "/notebooks/build"') == ["file:///tmp/x/build"]
