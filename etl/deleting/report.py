"""The report of a run that deletes images, for people and for programs."""

from dataclasses import dataclass, field

from formats.sizes import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """What was deleted, or would be.

    Attributes:
        data_table: The data table.
        metadata_table: The metadata table.
        images: The number of images.
        of: The number of images in the table before.
        bytes: The size of these images.
        sources: The number of images by source.
        before: The number of chosen images that were deleted by an earlier run.
        values: The tables of feature values and labels from which the values of these images were removed.
        splits: The number of these images in each split that holds some; None for a split that cannot be read.
        protected: The splits among these whose images are deleted only with ``--force``.
        models: The number of the images by registered model and use, such as ``model.pt@v1 (training)``; None if its
            split cannot be read.
        caches: The number of images that were removed from each metadata cache.
        confirm: The number for ``--count``, if it must be confirmed.
        history: The table that has a record of each image.
        sequence: The place of the run in the sequence of the table's runs; None if nothing was deleted.
        seconds: How long it took.
    """

    data_table: str
    metadata_table: str
    images: int
    of: int
    bytes: int
    sources: dict[str, int]
    before: int
    values: list[str]
    splits: dict[str, int | None]
    protected: list[str]
    models: dict[str, int | None]
    caches: dict[str, int]
    confirm: int | None
    history: str
    sequence: int | None
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        is_done = self.sequence is not None
        lines = [f"{name}: {counted(count, 'image')}" for name, count in self.sources.items()]
        for address, images in self.splits.items():
            number = "cannot be read" if images is None else f"{counted(images, 'image')}"
            note = "; it is pinned or named by --split, so --force is needed" if address in self.protected else ""
            lines.append(f"{address}: {number}{' deleted' if is_done and images is not None else note}")
        for name, images in self.models.items():
            number = "its split cannot be read" if images is None else f"has seen {counted(images, 'image')}"
            lines.append(f"model {name}: {number}")
        lines += [f"{address}: {counted(images, 'image')} removed from this cache" for address, images in
                  self.caches.items()]  # fmt: skip
        if self.values:
            lines.append(f"values in {', '.join(self.values)}")
        before = f"; {self.before:,} were deleted before" if self.before else ""
        size = f"{self.images:,} of {counted(self.of, 'image')} ({self.bytes / 1e6:,.1f} MB)"
        if is_done:
            last = f"deleted {size} from {self.metadata_table} and {self.data_table} in {self.seconds:,.1f} s{before}"
            last += f"; run {self.sequence}; recorded in {self.history}"
        else:
            last = f"would delete {size} of {self.metadata_table} and {self.data_table}{before}; nothing was deleted"
            if self.confirm is not None:
                last += f"; to delete them, add --count {self.confirm}"
        return "\n".join([*lines, last])
