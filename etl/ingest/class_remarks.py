"""Remarks on the classes of an ingest: those that are new, that have no images, and names that are nearly the same."""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from etl.ingest.destination import Destination, StartedRun
from etl.ingest.plan import IngestPlan
from formats.sizes import counted
from schemas.names import hidden_character

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClasses:
    """Classes that an ingest adds to those that a dataset has already; their numbers continue the dataset's."""

    dataset: str
    before: int
    new: int
    first: dict[str, int | None]  # the first few names with their numbers; None before they get numbers
    none_known: bool  # whether the source has none of the dataset's earlier classes

    @classmethod
    def of(
        cls,
        names: Collection[str],
        /,
        *,
        dataset: str,
        known: Collection[str],
        numbers: Mapping[str, int] | None = None,
    ) -> "NewClasses | None":
        """Compare the class names of a source with those of its dataset; None if it had none or if none is new."""
        new = sorted(set(names) - set(known))
        if not new or not known:
            return None
        first = {name: None if numbers is None else numbers[name] for name in new[:_SHOWN]}
        none_known = not set(names) & set(known)
        return cls(dataset=dataset, before=len(known), new=len(new), first=first, none_known=none_known)

    def __str__(self) -> str:
        names = {name: repr(name) if hidden_character(name) or name != name.strip() else name for name in self.first}
        shown = ", ".join(
            names[name] if number is None else f"{names[name]} = {number}" for name, number in self.first.items()
        )
        more = ", ..." if self.new > len(self.first) else ""
        absent = ", none of them in this source" if self.none_known else ""
        hint = " (if these images belong to another dataset, use other tables and set --dataset)"
        return (
            f"dataset {self.dataset!r} had {counted(self.before, 'class', 'classes')}{absent}; {self.new:,} new: "
            f"{shown}{more}{hint if self.none_known else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRemarks:
    """Remarks on the classes of an ingest."""

    new: NewClasses | None = None
    empty: list[str] = field(default_factory=list)  # the classes without images
    similar: list[dict[str, int]] = field(default_factory=list)  # the groups of `similar_classes`

    @property
    def lines(self) -> list[str]:
        """One line for each kind of remark."""
        return [
            *([str(self.new)] if self.new else []),
            *([describe_empty(self.empty)] if self.empty else []),
            *([describe_similar(self.similar)] if self.similar else []),
        ]


def class_remarks(
    images: Mapping[str, int],
    /,
    *,
    plan: IngestPlan,
    destination: Destination | None,
    started: StartedRun | None = None,
) -> ClassRemarks:
    """Make the remarks on classes, from the number of images in each. New classes get numbers when the run begins."""
    if plan.source.label_type != "int":
        return ClassRemarks()
    known = {} if destination is None else destination.known
    numbers = None if started is None else started.numbers
    new = NewClasses.of(images, dataset=plan.dataset, known=known, numbers=numbers)
    empty = sorted(name for name, count in images.items() if not count)
    return ClassRemarks(new=new, empty=empty, similar=similar_classes(images, known=known))


def similar_classes(images: Mapping[str, int], /, *, known: Collection[str] = ()) -> list[dict[str, int]]:
    """Find class names that differ only in surrounding blanks, case or Unicode form, with their numbers of images:
    groups of at least one name of the source and others of it or of the dataset (``known``), in code-point order.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted({*images, *known}):
        groups[_folded(name)].append(name)
    return [
        {name: images.get(name, 0) for name in names}
        for names in groups.values()
        if len(names) > 1 and any(name in images for name in names)
    ]


def describe_empty(names: Collection[str], /) -> str:
    """One line with the first few classes without images."""
    shown = ", ".join(repr(name) for name in list(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{counted(len(names), 'class has', 'classes have')} no images: {shown}"


def describe_similar(groups: Collection[Mapping[str, int]], /) -> str:
    """One line with the first few groups of `similar_classes`."""
    shown = ", ".join(_described(group) for group in list(groups)[:_SHOWN])
    more = f", and {len(groups) - _SHOWN:,} more" if len(groups) > _SHOWN else ""
    return f"class names that differ only in surrounding blanks, case or Unicode form: {shown}{more}"


def _described(group: Mapping[str, int]) -> str:
    looks_same = len({_shown(unicodedata.normalize("NFKC", name)) for name in group}) < len(group)
    return " and ".join(
        f"{ascii(name) if looks_same else repr(name)} ({counted(count, 'image')})" for name, count in group.items()
    )


def _folded(name: str) -> str:
    compatible = unicodedata.normalize("NFKC", _shown(name)).casefold()
    return unicodedata.normalize("NFKC", compatible).strip()


def _shown(name: str) -> str:
    """A name without the characters that only format it, such as U+200D and U+202E."""
    return name if name.isprintable() else "".join(one for one in name if unicodedata.category(one) != "Cf")
