"""What the tables say, in plain Python: the reading side of a history, as the Spark transforms read them."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etl.labels.corrections import Seen, State, is_replaced
from etl.tables.runs import STARTED, RecordedRun
from etl.tables.states import is_deleted, last_removal, state_at
from schemas.features import FeatureView
from schemas.tables import DELETED

GONE = "gone"
"""What `Reading.as_of` says of an image that existed then, but whose bytes do not exist any more."""
LOST = "lost"
"""What it says of an image whose bytes are said to be kept, and are not."""

Row = Mapping[str, Any]
Known = tuple[bytes, int | None]
"""The SHA-256 and the label of an image."""


def state_of(row: Row) -> Known:
    """The state that a row of the metadata, or of the history, has."""
    return row["sha256"], row["label"]


@dataclass(frozen=True)
class Split:
    """A split of a table, of which a model was trained."""

    sequence: int  # the newest run then
    unfinished: frozenset[int]
    version: int  # of the label view; 0 for the labels of the table
    labels: Mapping[uuid.UUID, int | None]


@dataclass(frozen=True)
class Reading:
    """The rows of a metadata table and of its history, and its runs."""

    rows: Mapping[uuid.UUID, Row]
    history: Sequence[Row]
    runs: Sequence[RecordedRun]
    values: Sequence[Row] = ()  # of the feature
    views: Sequence[FeatureView] = ()  # the versions of the label view, the newest first
    labels: Sequence[Row] = ()  # of the label view
    vectors: Sequence[Row] = ()  # of the index of the feature
    copies: Mapping[tuple[uuid.UUID, int], bytes] = field(default_factory=dict)  # replaced bytes, by image and checksum

    def of_image(self, image: uuid.UUID) -> list[Row]:
        """The history of an image."""
        return [row for row in self.history if row["id"] == image]

    def removals(self) -> dict[uuid.UUID, Row]:
        """`MetadataTable.removals`."""
        images = {row["id"] for row in self.history}
        found = {image: last_removal(self.of_image(image)) for image in images}
        return {image: removal for image, removal in found.items() if removal is not None}

    def deleted(self) -> set[uuid.UUID]:
        """`MetadataTable.deleted`."""
        return {
            image
            for image, row in self.removals().items()
            if is_deleted(self._since(image), kind=row["kind"], until=row["until"])
        }

    def half_deleted(self) -> set[uuid.UUID]:
        """`MetadataTable.half_deleted`."""
        begun = {run.sequence for run in self.runs if run.kind == "delete" and run.state == STARTED}
        recorded = {row["id"] for row in self.history if row["kind"] == DELETED and row["until"] in begun}
        return self.deleted() & self.rows.keys() if recorded & self.rows.keys() else set()

    def visible(self) -> dict[uuid.UUID, Known]:
        """The images of a split."""
        half = self.half_deleted()
        return {image: state_of(row) for image, row in self.rows.items() if image not in half}

    def as_of(self, sequence: int) -> dict[uuid.UUID, Known | str]:
        """The images of a split as of a run, `GONE` for those that ``--skip-replaced`` leaves out."""
        states = {row["id"]: state_at(self.of_image(row["id"]), sequence=sequence) for row in self.history}
        held = {image: state for image, state in states.items() if state is not None}
        found: dict[uuid.UUID, Known | str] = dict.fromkeys(held, GONE)
        half = self.half_deleted()
        for image, row in self.rows.items():
            if image in half:
                continue
            if row["since"] <= sequence:
                found[image] = state_of(row)
            elif image in held and held[image]["sha256"] == row["sha256"]:
                found[image] = state_of(held[image])
            elif image in held and held[image]["kept"]:
                found[image] = self._copied(image, held[image])
        return found

    def _copied(self, image: uuid.UUID, state: Row) -> Known | str:
        """What a reader finds of a state whose bytes are said to be kept."""
        copy = self.copies.get((image, state["xxhash64"]))
        return LOST if copy is None else (hashlib.sha256(copy).digest(), state["label"])

    def newest_values(self) -> dict[uuid.UUID, Row]:
        """The newest value of each image that has some, also of other bytes."""
        return {row["id"]: row for row in sorted(self.values, key=lambda row: row["sequence"])}

    def value(self, image: uuid.UUID) -> Row | None:
        """The value that a split has of an image: the newest one, if it is of the bytes that the image has now."""
        newest = max((row for row in self.values if row["id"] == image), key=lambda row: row["sequence"], default=None)
        return newest if newest is not None and newest["sha256"] == self.rows[image]["sha256"] else None

    def corrected(self, image: uuid.UUID) -> int | None:
        """The label that an image has in the newest version of the label view."""
        found = self.correction(image, self.views)
        label = self.rows[image]["label"] if found is None else found
        return None if label is None else int(label)

    def correction(self, image: uuid.UUID, versions: Iterable[FeatureView]) -> int | None:
        """The label that versions of the label view, the newest first, give an image; None if none does."""
        row = self.rows[image]
        now = State(row["since"], row["sha256"], row["label"])
        for of_image in (one for one in self.labels if one["id"] == image):
            for view in versions:
                label, sha256, before = (of_image[name] for name in view.label_columns)
                if label is not None and not is_replaced(Seen(view.sequence or 0, sha256, before), now):
                    return int(label)
        return None

    def changes(self, split: Split) -> dict[uuid.UUID, set[str]]:
        """What has changed of the images of a split: `split_changes.changes_of`, by the names of `model_changes`."""
        removals, found = self.removals(), dict[uuid.UUID, set[str]]()
        own = [view for view in self.views if view.version <= split.version]
        later = [view for view in self.views if view.version > split.version and (view.sequence or 0) > split.sequence]
        for image, was in split.labels.items():
            row, removal = self.rows.get(image), removals.get(image)
            kinds = found.setdefault(image, set())
            if row is None or (
                removal is not None and is_deleted(row["since"], kind=removal["kind"], until=removal["until"])
            ):
                kinds.add("images deleted")
                continue
            then = state_at(self.of_image(image), sequence=split.sequence)
            doubts = [one for one in self.of_image(image) if one["until"] in split.unfinished]
            doubt = max(doubts, key=lambda one: one["until"], default=None)
            is_other = then is None or then["sha256"] != row["sha256"]
            is_doubtful = doubt is not None and doubt["until"] == row["since"] and doubt["sha256"] != row["sha256"]
            if (row["since"] > split.sequence and is_other) or is_doubtful:
                kinds.add("bytes replaced")
            label, correction = self.correction(image, own), self.correction(image, later)
            if (row["label"] if label is None else label) != was or correction not in (None, was):
                kinds.add("labels corrected")
        return found

    def _since(self, image: uuid.UUID) -> int:
        return (self.rows[image]["since"] or 0) if image in self.rows else 0
