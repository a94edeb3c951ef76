"""The record of a trained model: which images were used for training and validation. It is saved beside the checkpoint.

It links a checkpoint to splits by their fingerprints, so that a model can be followed back to tables and sources.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from schemas.parsing import check_digest, parsed

FORMAT = 1
"""The format version that this software writes, and the newest one that it reads."""

SUFFIX = ".lineage.json"
"""The end of its name, after the name of the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedImages:
    """The images of training or validation.

    Attributes:
        kind: Where they came from: ``split`` (a row list too), ``shards`` or ``folders``.
        address: The split, row list, folder of shards or folder of images.
        index: The number of the split in its folder.
        fingerprint: The fingerprint of the split or shards.
        rows: The number of images.
        data_table: The table of the images; empty if they are files.
        metadata_table: The table of their metadata; empty if it is not known.
    """

    kind: str
    address: str
    index: int
    fingerprint: str
    rows: int
    data_table: str = ""
    metadata_table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """The record of a checkpoint.

    Attributes:
        checkpoint: The file name of the checkpoint, in the folder of this record.
        sha256: The SHA-256 of the checkpoint, in hexadecimal.
        arch: The name of the model; empty if it is not known.
        classes: The number of classes of its images.
        seed: The seed of the training; None if it is not known.
        epochs: The number of epochs that were asked for; None if it is not known.
        epoch: The number of complete epochs that the checkpoint has seen; None if it is not known.
        images: The images by use: ``training`` and ``validation``.
        created: When it was written, ISO 8601, UTC.
        code_version: The version of the software.
        format: The format version.
    """

    checkpoint: str
    sha256: str
    arch: str
    classes: int
    seed: int | None
    epochs: int | None
    epoch: int | None
    images: Mapping[str, TrainedImages]
    created: str
    code_version: str
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The record as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "ModelRecord":
        """Read a record; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, cls._read, what="record of a model", place=place, newest=FORMAT)

    @classmethod
    def _read(cls, found: dict[str, Any]) -> "ModelRecord":
        images = {use: TrainedImages(**one) for use, one in found["images"].items()}
        for one in images.values():
            check_digest(one.fingerprint)
        return cls(**{**found, "sha256": check_digest(found["sha256"]), "images": images})
