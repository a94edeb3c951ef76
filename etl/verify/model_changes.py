"""What has changed of a model's images since their splits were made: labels, bytes, and images that were deleted."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from etl.catalog.lineage import UsedImages
from etl.errors import EtlError
from etl.verify.split_changes import CORRECTED, FILES, SplitChanges, changes_of
from formats import FormatsError, OpenSplit, is_dictionary, open_split
from formats.sizes import counted
from schemas import SchemaError

SINCE = {
    "labels corrected": (CORRECTED, "other label"),
    "images deleted": ("deleted", "pruned", "missing"),
    "bytes replaced": ("other bytes", "unknown bytes", "other mask"),
}
"""What may have changed, with the kinds of changes of a split that count for it."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ModelImages:
    """A model, and the images that it used."""

    model: str
    used: Sequence[UsedImages]


@dataclass(frozen=True, slots=True)
class Since:
    """How many images have changed in one way, and the first of them."""

    images: int
    first: list[str]  # ids


@dataclass(frozen=True, slots=True, kw_only=True)
class UseChanges:
    """What has changed of the images of one use since their split was made."""

    use: str  # ``training`` or ``validation``
    split: str
    index: int
    fingerprint: str
    images: int
    run: int | None  # the run whose images and labels the split has, or after which it was made
    created: str
    since: dict[str, Since]  # by `SINCE`
    unchecked: list[str]

    def __str__(self) -> str:
        made = f"made after run {self.run}" if self.run is not None else "made"
        lines = [
            f"{self.use}: {counted(self.images, 'image')} of split {self.index} of {self.split}, fingerprint "
            f"{self.fingerprint[:12]}, {made}, {self.created}"
        ]
        for name, one in self.since.items():
            more = ", ..." if one.images > len(one.first) else ""
            ids = f": {', '.join(one.first)}{more}" if one.images else ""
            lines.append(f"  {name} since then: {one.images:,}{ids}")
        return "\n".join([*lines, *(f"  not verified: {text}" for text in self.unchecked)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanges:
    """What has changed of a model's images, by use, and what could not be found out."""

    model: str
    uses: list[UseChanges]
    not_known: list[str]

    def __str__(self) -> str:
        told = [f"not known: {text}" for text in self.not_known]
        return "\n".join(
            [f"model {self.model}", *map(str, self.uses), *told, *([self._verdict()] if self.uses else [])]
        )

    def _verdict(self) -> str:
        corrected = [(one.use, one.since["labels corrected"].images) for one in self.uses]
        labels = ", ".join(f"{counted(images, 'label')} of {use}" for use, images in corrected if images)
        if labels:
            return f"trained before these were corrected: {labels}"
        return "no label was corrected since" + (", as far as is known" if self.not_known else "")


def run(spark: SparkSession, *, plan: ModelImages) -> ModelChanges:
    """Find out what has changed of a model's images since their splits were made. Writes nothing. Raises `EtlError` if
    Cassandra does not answer.
    """
    uses, unknown = [], []
    for one in plan.used:
        split, reasons = _split_of(one)
        if split is None:
            unknown.append(f"{one.use}: no split of fingerprint {one.fingerprint[:12]} was found{reasons}")
            continue
        index = split.fingerprints.index(one.fingerprint)
        found = changes_of(spark, split, index=index, has_corrections=True)
        uses.append(
            UseChanges(
                use=one.use,
                split=split.address,
                index=index,
                fingerprint=one.fingerprint,
                images=found.images,
                run=found.sequence if found.as_of is None else found.as_of,
                created=split.manifest.created,
                since={name: _since(found, kinds) for name, kinds in SINCE.items()},
                unchecked=[
                    *found.unchecked,
                    *(f"{one.kind}: {one.detail}" for one in found.changes if one.kind == FILES),
                ],
            )
        )
    return ModelChanges(model=plan.model, uses=uses, not_known=unknown)


def _since(found: SplitChanges, kinds: Sequence[str]) -> Since:
    ids = sorted(change.id for change in found.changes if change.kind in kinds and change.id is not None)
    return Since(sum(found.counts.get(kind, 0) for kind in kinds), ids[:_SHOWN])


def _split_of(images: UsedImages) -> tuple[OpenSplit | None, str]:
    """The split folder with the fingerprint of these images, wherever it is; or None, and why the others are not it."""
    reasons = []
    for address in images.addresses:
        try:
            if is_dictionary(address):
                reasons.append(f"{address} is a split dictionary")
                continue
            split = open_split(address)
        except (EtlError, FormatsError, SchemaError, OSError) as error:
            reasons.append(f"{address} cannot be read ({error})")
            continue
        if images.fingerprint not in split.fingerprints:
            reasons.append(f"{address} is another split now")
        # Images may have been replaced in between, and labels corrected.
        elif split.manifest.created > images.created:
            reasons.append(f"{address} was made again at {split.manifest.created}, after the model")
        elif images.made and split.manifest.created != images.made:
            reasons.append(f"{address} was made at {split.manifest.created}, not at {images.made}")
        else:
            return split, ""
    found = f": {'; '.join(reasons)}" if reasons else ""
    return None, f"{found}. If you have a copy of it, run: imagestrata registry add FOLDER"
