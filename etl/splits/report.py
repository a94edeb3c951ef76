"""The report of jobs/split.py: its last line, JSON for programs, and the contents of the page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from etl.splits.dealing.methods import Dealt
from etl.splits.metadata import Metadata
from etl.splits.page.document import PageFacts
from etl.splits.plan import SplitPlan, listed
from formats.sizes import counted
from schemas import SplitPart

Leaks = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The splits that were written, or would be: rows, fingerprints, images by class and split, and the address.

    ``images`` counts those in any split, each once, though folds have them several times. ``ideals`` has the rows of
    each split by the ratios alone. ``method`` is how images were assigned. ``leaks`` has what is in two splits, as far
    as the metadata shows.
    """

    out: str | None
    rows: list[int]
    images: int
    unused: int
    counts: list[dict[str, int]]
    fingerprints: list[str]
    ideals: list[float]
    method: str
    leaks: dict[str, dict[str, int]]
    warnings: list[str]
    replaced: int  # images that were replaced since their label was corrected; 0 if nothing was written
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        rows = " + ".join(f"{count:,}" for count in self.rows)
        classes = len({label for counts in self.counts for label in counts})
        images = counted(self.images, "image") + (f" of {counted(classes, 'class', 'classes')}" if classes else "")
        unused = f", {self.unused:,} left out" if self.unused else ""
        told = [f"warning: {warning}" for warning in self.warnings]
        if self.out is None:
            return "\n".join([*told, *self._table(), f"would split {images} into {rows}{unused}; {self.method}"])
        prints = ", ".join(text[:12] for text in self.fingerprints)
        last = f"split {images} into {rows}{unused} at {self.out} in {self.seconds:.1f} s; fingerprints {prints}"
        return "\n".join([*told, last])

    def _table(self) -> list[str]:
        """Images by class and split, as text."""
        names = list(dict.fromkeys(name for counts in self.counts for name in counts))
        header = ["class", *(f"split {number}" for number in range(len(self.rows)))]
        lines = [[name, *(f"{counts.get(name, 0):,}" for counts in self.counts)] for name in names]
        lines.append(["all", *(f"{rows:,}" for rows in self.rows)])
        widths = [max(len(line[index]) for line in [header, *lines]) for index in range(len(header))]
        return [
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
                ]
            )
            for line in [header, *lines]
        ]


def report(
    dealt: Dealt,
    *,
    metadata: Metadata,
    out: str | None,
    fingerprints: Sequence[str],
    leaks: Leaks,
    warnings: Sequence[str],
    seconds: float,
    copies: int = 1,
) -> SplitReport:
    """Make the report. ``copies`` is how often each image is in a split."""
    names = _names(dealt.counts, metadata)
    return SplitReport(
        out=out,
        rows=[int(size) for size in dealt.sizes],
        images=int(sum(dealt.sizes)) // copies,
        unused=dealt.unused,
        counts=[
            {names[label]: int(row[split]) for label, row in dealt.counts.items() if row[split]}
            for split in range(len(dealt.sizes))
        ],
        fingerprints=list(fingerprints),
        ideals=[round(ideal, 6) for ideal in dealt.ideal_sizes],
        method=dealt.method,
        leaks={name: dict(found) for name, found in leaks.items()},
        warnings=list(warnings),
        replaced=metadata.replaced,
        seconds=seconds,
    )


def page_facts(
    plan: SplitPlan,
    dealt: Dealt,
    *,
    metadata: Metadata,
    ratios: tuple[Fraction, ...],
    parts: Sequence[SplitPart],
    leaks: Leaks,
    warnings: Sequence[str],
) -> PageFacts:
    """Make the contents of the page."""
    facts = {
        "data": str(metadata.data_table),
        "metadata": plan.metadata_in or str(metadata.metadata_table),
        "method": dealt.method,
        "folds" if plan.folds else "ratios": str(plan.folds) if plan.folds else listed(ratios),
        "balance": plan.as_balance(),
        "left out": counted(dealt.unused, "image"),
        "seed": str(plan.seed),
    }
    chosen = {
        "limit per class": plan.per_class,
        "limit in all": plan.limit,
        "groups": plan.group_column,
        "condition": plan.where,
        "as of run": metadata.as_of,
        "labels": metadata.label_view,
        "excluded": ", ".join(map(str, plan.exclude)),
        "pinned": ", ".join(map(str, plan.pins)),
        "extends": plan.extend,
    }
    called = _names(dealt.counts, metadata)
    names = (
        [f"fold {number // 2} {'validation' if number % 2 else 'training'}" for number in range(len(parts))]
        if plan.folds
        else [f"split {number}" for number in range(len(parts))]
    )
    return PageFacts(
        title=str(plan.out),
        facts={**facts, **{name: str(value) for name, value in chosen.items() if value}},
        split_names=names,
        rows=[part.rows for part in parts],
        ideal_rows=list(dealt.ideal_sizes),
        fingerprints=[part.fingerprint for part in parts],
        classes=[
            (called[label], dealt.counts[label], dealt.ideals[label], dealt.images[label]) for label in dealt.counts
        ],
        leaks=leaks,
        warnings=list(warnings),
        copies=plan.folds or 1,
    )


def _names(labels: Iterable[int], metadata: Metadata) -> dict[int, str]:
    """The names of classes, each once: with the number where two classes have one name."""
    names = {label: metadata.class_names.get(label, str(label)) for label in labels}
    times = Counter(names.values())
    return {label: name if times[name] == 1 else f"{name} ({label})" for label, name in names.items()}
