"""The record of a trained model: which images it was trained on. It is saved beside the checkpoint."""

import hashlib
import os
from collections.abc import Sequence

from formats.durability import whole_file
from formats.origin import code_version, created
from loader.errors import OptionError
from loader.folder.folders import Folder
from loader.mixed.mixture import Mixture
from loader.shards.shard_set import Shards
from loader.splits import Split
from schemas.models import SUFFIX, ModelRecord, TrainedImages


def record_model(
    checkpoint: str | os.PathLike[str],
    *,
    training: Split | Sequence[Split],
    validation: Split | Sequence[Split] | None = None,
    arch: str = "",
    seed: int | None = None,
    epochs: int | None = None,
    epoch: int | None = None,
) -> str:
    """Write the record of a checkpoint beside it: its SHA-256 and the fingerprints of its images.

    ``imagestrata lineage`` and ``imagestrata registry add`` read it. Call this on one rank, after the checkpoint was
    saved, and again each time it is saved.

    Args:
        checkpoint: The file that your training saved.
        training: The split, class folders or shards of training, or several; ``source.split`` if you have a source.
            Of a mixture, its parts are recorded.
        validation: Those of validation.
        arch: The name of the model.
        seed: The seed of the training.
        epochs: The number of epochs that were asked for.
        epoch: The number of complete epochs that the checkpoint has seen.

    Returns:
        The path of the record, ``CHECKPOINT.lineage.json``.

    Raises:
        OptionError: There is no such file, or the images are no split.
        OSError: The record cannot be written.
    """
    used = {**_uses("training", training), **_uses("validation", validation)}
    images = {use: _images(split) for use, split in used.items()}
    if "training" not in images:
        raise OptionError("Wanted the images of training. Found: none.")
    try:
        with open(checkpoint, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OptionError(
            f"Wanted the file of a checkpoint. Found: {error.strerror or error}: {os.fspath(checkpoint)}. Save it."
        ) from error
    record = ModelRecord(
        checkpoint=os.path.basename(checkpoint),
        sha256=digest,
        arch=arch,
        classes=max(split.num_classes for use, split in used.items() if use.startswith("training")),
        seed=seed,
        epochs=epochs,
        epoch=epoch,
        images=images,
        created=created(),
        code_version=code_version(),
    )
    path = f"{os.fspath(checkpoint)}{SUFFIX}"
    with whole_file(path, durable=True) as file:
        file.write(record.to_json().encode())
    return path


def _uses(name: str, splits: Split | Sequence[Split] | None) -> dict[str, Split]:
    """The splits of a use by name: ``training``, ``training 2`` and so on."""
    given = [] if splits is None else splits if isinstance(splits, Sequence) else [splits]
    several = [part for one in given for part in (one.parts.values() if isinstance(one, Mixture) else [one])]
    return {name if number == 1 else f"{name} {number}": split for number, split in enumerate(several, start=1)}


def _images(split: Split) -> TrainedImages:
    if not isinstance(split, Split):
        raise OptionError(
            f"Wanted a split, class folders or shards. Found: {type(split).__name__}. Of a source, pass source.split."
        )
    kind = "shards" if isinstance(split, Shards) else "folders" if isinstance(split, Folder) else "split"
    return TrainedImages(
        kind=kind,
        address=str(split.address),
        index=split.index,
        fingerprint=split.fingerprint,
        rows=len(split),
        data_table=split.data_table,
        metadata_table=split.metadata_table,
        made=split.opened.manifest.created if kind == "split" else "",
    )
