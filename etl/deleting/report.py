"""The report of a run that deletes images, for people and for programs."""

from dataclasses import dataclass, field

from formats.sizes import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """What was deleted, or would be."""

    data_table: str
    metadata_table: str
    images: int
    of: int  # the images in the table before
    bytes: int
    sources: dict[str, int]
    before: int  # chosen images that were deleted by an earlier run
    values: list[str]  # the tables from which feature values and labels of these images were removed
    splits: dict[str, int | None]  # The images in each split that holds some; None for a split that cannot be read.
    protected: list[str]  # the splits among these that need ``--force``
    # The images by registered model and use, such as ``model.pt@v1 (training)``; None if its split cannot be read.
    models: dict[str, int | None]
    caches: dict[str, int]  # the images that were removed from each metadata cache
    confirm: int | None  # the number for ``--count``, if it must be confirmed
    history: str  # the table that has a record of each image
    sequence: int | None  # of the run, among the table's runs; None if nothing was deleted
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
