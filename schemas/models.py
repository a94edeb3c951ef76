"""The record of a trained model: which images were used for training and validation. It is saved beside the checkpoint.

It links a checkpoint to splits by their fingerprints, so that a model can be followed back to tables and sources.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from schemas.parsing import Digest, parsed, reader

FORMAT = 1  # the format version that this software writes, and the newest one that it reads

SUFFIX = ".lineage.json"  # the end of its name, after the name of the checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedImages:
    """The images of training or validation, and where they come from."""

    kind: str  # ``split`` (a row list too), ``shards`` or ``folders``
    address: str
    index: int  # the number of the split in its folder
    fingerprint: Digest
    rows: int
    data_table: str = ""  # empty if the images are files
    metadata_table: str = ""  # empty if it is not known
    made: str = ""  # when the split was made, ISO 8601, UTC; empty for other images, and in earlier records


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """The record of a checkpoint. What is not known is empty or None."""

    checkpoint: str  # a file name in the folder of this record
    sha256: Digest
    arch: str
    classes: int
    seed: int | None
    epochs: int | None  # that were asked for
    epoch: int | None  # complete epochs that the checkpoint has seen
    images: Mapping[str, TrainedImages]  # by use: ``training``, ``training 2``, ... and ``validation``
    created: str  # ISO 8601, UTC
    code_version: str
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The record as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "ModelRecord":
        """Read a record; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, reader(cls), what="record of a model", place=place, newest=FORMAT)
