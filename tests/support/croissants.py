"""Read Croissant descriptions with mlcroissant, with a temporary folder as its cache."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

_CACHE = tempfile.mkdtemp(prefix="croissant-")
os.environ["CROISSANT_CACHE"] = _CACHE  # mlcroissant reads it at import
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)


def read(description: Path) -> Any:
    """A dataset, validated: mlcroissant raises for errors of a description."""
    import mlcroissant

    found = mlcroissant.Dataset(description)
    assert found.metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    assert not found.metadata.ctx.issues.errors
    return found


def records(description: Path, record_set: str) -> list[dict[str, Any]]:
    """The records of a record set, with the short names of fields."""
    return [
        {name.rpartition("/")[2]: value for name, value in record.items()}
        for record in read(description).records(record_set)
    ]
